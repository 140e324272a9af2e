"""Processes: where one is, whether it is stopped, how it ends with its parent."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_STARTED = 19


@dataclass(frozen=True, slots=True)
class Place:
    """A process. `namespace` and `started`, in ticks since the boot, tell whether `pid` means the
    same process here and now."""

    host: str
    pid: int
    namespace: str
    started: str


def here() -> Place:
    return place_of(os.getpid())


def place_of(pid: int) -> Place:
    """A process of this host, by its number in this process's namespace."""
    fields = _state(pid)
    return Place(socket.gethostname(), pid, _namespace(), fields[_STARTED] if fields else "")


def is_stopped(place: Place) -> bool:
    """Is it suspended by a signal? False for a process that cannot be seen from here.

    One that a debugger holds counts as running (state `t`, not `T`).
    """
    fields = _seen(place)
    return bool(fields) and fields[0] == "T"


def kill_if_here(place: Place) -> None:
    """End a process that hangs, from any other one of its host."""
    if _seen(place):
        with suppress(ProcessLookupError):
            os.kill(place.pid, signal.SIGKILL)


def die_with_parent(parent: int) -> None:
    """Have the system kill this process as soon as `parent` ends, however that happens.

    Linux only; elsewhere the closed line to the parent tells the same a little later.
    """
    if sys.platform == "linux":
        set_death_signal = 1
        ctypes.CDLL(None, use_errno=True).prctl(set_death_signal, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _seen(place: Place) -> list[str]:
    """The state of the process; empty where it is not one of this host, or has ended."""
    if place.host != socket.gethostname() or place.namespace != _namespace():
        return []
    fields = _state(place.pid)
    return fields if fields and fields[_STARTED] == place.started else []


def _state(pid: int) -> list[str]:
    """From /proc/PID/stat, the fields after the name of the program."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""
