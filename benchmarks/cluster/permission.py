"""May this process emulate a cluster?"""

from __future__ import annotations

import os
import shutil
import subprocess

_TOOLS = ("unshare", "nsenter", "ip", "tc", "bridge", "sysctl")


def why_not() -> str | None:
    """What is missing, or None."""
    if os.geteuid() != 0:
        return "an emulated cluster needs root"
    missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if missing:
        return f"an emulated cluster needs {', '.join(missing)}"
    command = ["unshare", "--net", "--mount", "--uts", "--ipc", "--pid", "--mount-proc", "--fork"]
    done = subprocess.run(
        [*command, "ip", "link", "add", "x0", "type", "veth", "peer", "name", "x1"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        return f"namespaces are not permitted here: {done.stderr.strip()}"
    return None
