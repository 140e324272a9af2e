"""Where each rank of a host stands, readable after its death.

Memory that the parent and its ranks share through a file without a name: nothing of it is left
when they end, and a rank that was killed between two heartbeats has still said what it was doing.
"""

from __future__ import annotations

import mmap

_RECORD_BYTES = 256


class Board:
    """One record a rank, in the order of `ranks` on this host."""

    def __init__(self, handle: int, num_records: int) -> None:
        self._memory = mmap.mmap(handle, num_records * _RECORD_BYTES)

    @staticmethod
    def size_bytes(num_records: int) -> int:
        return num_records * _RECORD_BYTES

    def write(self, index: int, text: str) -> None:
        """At most a record's length; what is longer loses its end."""
        start = index * _RECORD_BYTES
        record = text.encode()[:_RECORD_BYTES].ljust(_RECORD_BYTES, b"\0")
        self._memory[start : start + _RECORD_BYTES] = record

    def read(self, index: int) -> str:
        start = index * _RECORD_BYTES
        record = self._memory[start : start + _RECORD_BYTES]
        return record.rstrip(b"\0").decode(errors="ignore")

    def close(self) -> None:
        self._memory.close()
