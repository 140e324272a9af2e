"""The few calls to the system that the emulation is made of."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shlex
import signal
import subprocess

_PR_SET_PDEATHSIG = 1


def sh(*command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run a command; RuntimeError with what it printed if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if check and done.returncode:
        printed = done.stderr.strip() or done.stdout.strip()
        raise RuntimeError(f"{shlex.join(command)}: {printed}")
    return done


def die_with_parent() -> None:
    """A preexec_fn: the child gets SIGKILL when this process dies, however it dies."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def send_signal(pid: int, signum: int) -> None:
    """A process that is gone already is no error."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signum)
