"""Files that are whole or absent, whatever stops the process."""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from giantdsl.errors import SettingsError

_CHUNK_BYTES = 1 << 20


def sync_file(path: Path) -> None:
    """Wait until the file's bytes are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_directory(path: Path) -> None:
    """Wait until the directory's entries are on the disk."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_atomically(path: Path, text: str) -> None:
    """Replace a file by another: a reader sees the old one or the new one."""
    temporary = path.with_name(f".{path.name}.new")
    with open(temporary, "w", encoding="utf-8", newline="\n") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    sync_directory(path.parent)


def write_json(path: Path, value: Any) -> None:
    write_atomically(path, json.dumps(value, indent=2, allow_nan=False) + "\n")


def digest(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    total = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            total.update(chunk)
    return total.hexdigest()


@contextmanager
def writing(what: str, path: Path) -> Iterator[None]:
    """Turn the operating system's refusal into one line that says what to do."""
    try:
        yield
    except OSError as error:
        raise SettingsError(f"cannot write {what} {path}: {reason(error)}") from error


def reason(error: OSError) -> str:
    """Why a file could not be written, with what to do about it."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "the disk is full; make room and start again, it goes on from the last checkpoint"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return "no permission to write there; choose another directory with `--run-dir`"
    return (error.strerror or str(error)).lower()
