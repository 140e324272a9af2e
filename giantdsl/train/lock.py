"""One process a run directory."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from giantdsl.errors import SettingsError
from giantdsl.train.files import writing

LOCK_FILE = ".lock"
_HELD = (errno.EACCES, errno.EAGAIN)
_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hold the run directory, made if it is missing.

    The system drops the lock with the process, however that ends, and its children do not
    inherit it. The file also names the holder: that decides on file systems without locks, and
    between two runs of one process, which the system's lock lets through.

    Raises SettingsError where another run has the directory.
    """
    path = directory / LOCK_FILE
    with writing("run directory", directory):
        directory.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        holder = _read_holder(handle)
        if not _try_lock(handle, holder) or _is_alive_here(holder):
            raise _in_use(directory, holder)
        _write_holder(handle, _me())
        try:
            yield
        finally:
            os.ftruncate(handle, 0)
    finally:
        os.close(handle)


def _try_lock(handle: int, holder: dict[str, Any]) -> bool:
    try:
        fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _HELD:
            return False
        if error.errno not in _NO_LOCKS:
            raise
        # Nobody here can ask another host whether its process still runs.
        return not holder or holder.get("host") == socket.gethostname()
    return True


def _me() -> dict[str, Any]:
    pid = os.getpid()
    return {
        "pid": pid,
        "started": _start_time(pid),
        "boot": _boot_id(),
        "host": socket.gethostname(),
    }


def _is_alive_here(holder: dict[str, Any]) -> bool:
    """Does the process that wrote the file still run on this machine, since the same boot?"""
    if not holder or holder.get("host") != socket.gethostname():
        return False
    if holder.get("pid") == os.getpid():
        return holder == _me()
    started = holder.get("started")
    same_boot = holder.get("boot") == _boot_id()
    return same_boot and started is not None and _start_time(holder["pid"]) == started


def _start_time(pid: int) -> str | None:
    """When a process began, in clock ticks since the boot; None: no process, or no /proc."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return fields[19]


def _boot_id() -> str | None:
    path = Path("/proc/sys/kernel/random/boot_id")
    return path.read_text().strip() if path.exists() else None


def _read_holder(handle: int) -> dict[str, Any]:
    try:
        holder = json.loads(os.pread(handle, 4096, 0))
    except ValueError:
        return {}
    return holder if isinstance(holder, dict) else {}


def _write_holder(handle: int, holder: dict[str, Any]) -> None:
    os.ftruncate(handle, 0)
    os.pwrite(handle, json.dumps(holder).encode(), 0)


def _in_use(directory: Path, holder: dict[str, Any]) -> SettingsError:
    who = f"process {holder['pid']} on {holder['host']}" if holder else "another process"
    return SettingsError(
        f"run directory {directory} is in use by {who}; "
        "wait for it, or choose another directory with `--run-dir`"
    )
