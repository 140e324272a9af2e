"""Anonymous namespaces, held open by a process that dies with us."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from .system import die_with_parent, send_signal, sh

_GONE_S = 5.0


class Namespace:
    """Namespaces of the given `unshare` flags, set up by a shell line.

    With a PID namespace the held process is its init: killing it kills everything in there at
    once, which is what a power cut looks like to the rest. Raises RuntimeError where the kernel
    refuses.
    """

    def __init__(self, kinds: Sequence[str], setup: str = "true") -> None:
        self._kinds = tuple(kinds)
        self._holder = subprocess.Popen(
            ["unshare", *kinds, "--kill-child", "--fork", "sh", "-c",
             f"{setup} && echo ready && exec sleep infinity"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            preexec_fn=die_with_parent, start_new_session=True,
        )  # fmt: skip
        assert self._holder.stdout is not None and self._holder.stderr is not None
        if self._holder.stdout.readline().strip() != "ready":
            self._holder.kill()
            raise RuntimeError(f"no namespace: {self._holder.communicate()[1].strip()}")
        children = Path(f"/proc/{self._holder.pid}/task/{self._holder.pid}/children")
        self.pid = int(children.read_text().split()[0])

    def enter(self, *command: str, flags: Sequence[str] | None = None) -> list[str]:
        """The command line that runs a command inside."""
        return ["nsenter", "-t", str(self.pid), *(flags or self.enter_flags), "--", *command]

    @property
    def enter_flags(self) -> list[str]:
        return [flag for flag in self._kinds if not flag.startswith("--mount-proc")]

    def sh(self, *command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run an ip, tc or bridge command on this network stack."""
        return sh(*self.enter(*command, flags=["--net"]), check=check)

    @property
    def is_alive(self) -> bool:
        return self._holder.poll() is None

    def kill(self) -> None:
        """Kill what is inside and wait until it is gone. May be called again."""
        if self.is_alive:
            self._holder.kill()
            self._holder.wait()
            send_signal(self.pid, signal.SIGKILL)
            limit = time.monotonic() + _GONE_S
            while _is_running(self.pid) and time.monotonic() < limit:
                time.sleep(0.005)
        for pipe in (self._holder.stdout, self._holder.stderr):
            assert pipe is not None
            pipe.close()


def _is_running(pid: int) -> bool:
    """A zombie has left its namespaces; when it is reaped is up to the machine's init."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"
