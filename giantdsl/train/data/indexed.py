"""Token files `.bin/.idx`, the format of Megatron-LM (its MMapIndexedDataset, version 1).

The index: 9 bytes of magic, version u64, dtype code u8, number of sequences u64, number of
document boundaries u64, lengths i32, byte offsets i64, boundaries i64. All little-endian.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from giantdsl.errors import SettingsError

_MAGIC = b"MMIDIDX\x00\x00"
_HEADER = struct.Struct("<9sQBQQ")
_DTYPES: dict[int, Any] = {
    1: np.uint8,
    2: np.int8,
    3: np.int16,
    4: np.int32,
    5: np.int64,
    8: np.uint16,
}
_FLOATS = {6: "float64", 7: "float32"}


@dataclass(frozen=True, slots=True)
class Tokens:
    """Token ids of a file, memory-mapped, and where its documents are.

    `starts` and `lengths` count tokens; document i is tokens[starts[i] : starts[i] + lengths[i]].
    """

    tokens: npt.NDArray[Any]
    starts: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int64]

    @property
    def num_tokens(self) -> int:
        return int(self.lengths.sum())


def prefix_of(path: Path) -> Path:
    """`corpus` of `corpus.bin`, `corpus.idx` or `corpus`."""
    return path.with_suffix("") if path.suffix in (".bin", ".idx") else path


def read_tokens(prefix: Path) -> Tokens:
    """Open a pair of files. Raises SettingsError saying what is wrong with which file."""
    index, data = prefix.with_name(prefix.name + ".idx"), prefix.with_name(prefix.name + ".bin")
    for path in (index, data):
        if not path.is_file():
            raise SettingsError(f"{path}: no such file; a token file is a pair .bin and .idx")
    size = index.stat().st_size
    with index.open("rb") as stream:
        head = stream.read(_HEADER.size)
    if len(head) < _HEADER.size:
        raise SettingsError(f"{index}: too short for an index, {size} bytes")
    magic, version, code, num_sequences, num_boundaries = _HEADER.unpack(head)
    if magic != _MAGIC:
        raise SettingsError(f"{index}: not a token index, it starts with {magic[:8]!r}")
    if version != 1:
        raise SettingsError(
            f"{index}: version {version} of the format is not known{_swapped(version)}"
        )
    if code not in _DTYPES:
        what = f"holds {_FLOATS[code]}, not tokens" if code in _FLOATS else f"has dtype code {code}"
        raise SettingsError(f"{index}: {what}")
    needed = _HEADER.size + num_sequences * 12 + num_boundaries * 8
    if needed != size:
        raise SettingsError(
            f"{index}: {num_sequences:,} sequences and {num_boundaries:,} document ends take "
            f"{needed:,} bytes, the file has {size:,}; it is truncated or damaged"
        )
    return _mapped(index, data, np.dtype(_DTYPES[code]), num_sequences, num_boundaries)


def _swapped(version: int) -> str:
    big = int.from_bytes(version.to_bytes(8, "little"), "big")
    return "; it was written in another byte order" if big == 1 else ""


def _mapped(
    index: Path, data: Path, dtype: np.dtype[Any], num_sequences: int, num_boundaries: int
) -> Tokens:
    size = data.stat().st_size
    if size % dtype.itemsize:
        raise SettingsError(f"{data}: {size:,} bytes are no whole number of {dtype} tokens")
    at = _HEADER.size
    lengths = np.fromfile(index, "<i4", num_sequences, offset=at).astype(np.int64)
    offsets = np.fromfile(index, "<i8", num_sequences, offset=at + 4 * num_sequences)
    ends = np.fromfile(index, "<i8", num_boundaries, offset=at + 12 * num_sequences)
    if num_sequences:
        last = offsets + lengths * dtype.itemsize
        bad = (lengths < 0) | (offsets < 0) | (last > size) | (offsets % dtype.itemsize != 0)
        if bad.any():
            which = int(np.argmax(bad))
            raise SettingsError(
                f"{index}: sequence {which:,} lies at byte {int(offsets[which]):,} with "
                f"{int(lengths[which]):,} tokens, {data.name} has {size:,} bytes"
            )
    starts = offsets // dtype.itemsize
    if num_boundaries > 1 and not (np.diff(ends) == 1).all():
        starts, lengths = _documents(index, starts, lengths, ends)
    tokens: npt.NDArray[Any] = (
        np.memmap(data, dtype=dtype, mode="r") if size else np.zeros(0, dtype)
    )
    return Tokens(tokens, starts, lengths)


def _documents(
    index: Path,
    starts: npt.NDArray[np.int64],
    lengths: npt.NDArray[np.int64],
    ends: npt.NDArray[np.int64],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Sequences merged into documents where they lie one after the other."""
    if ends[0] != 0 or ends[-1] != len(starts) or (np.diff(ends) < 0).any():
        raise SettingsError(f"{index}: the document ends are not in order")
    total = np.concatenate([[0], np.cumsum(lengths)])
    if len(starts) and not np.array_equal(starts - starts[0], total[:-1]):
        return starts, lengths
    first = starts[0] if len(starts) else 0
    return first + total[ends[:-1]], total[ends[1:]] - total[ends[:-1]]


def token_dtype(vocab_size: int) -> np.dtype[Any]:
    """The smallest type Megatron uses for ids below `vocab_size`."""
    return np.dtype(np.uint16 if vocab_size <= 65_500 else np.int32)


class Writer:
    """Writes documents one after the other; nothing is there under the final name before `close`."""

    def __init__(self, prefix: Path, vocab_size: int) -> None:
        self._prefix, self._dtype = prefix, token_dtype(vocab_size)
        prefix.parent.mkdir(parents=True, exist_ok=True)
        self._unfinished = prefix.with_name(f".{prefix.name}.{os.getpid()}")
        self._data = self._unfinished.with_suffix(".bin").open("wb")
        self._lengths: list[int] = []

    def add(self, ids: Iterable[int]) -> int:
        """Append a document, which may be empty; gives the number of its tokens."""
        array = np.fromiter(ids, dtype=self._dtype)
        self._data.write(array.tobytes())
        self._lengths.append(len(array))
        return len(array)

    def close(self) -> None:
        """Publish both files, the index last: a reader never sees one without the other."""
        for stream in (self._data,):
            stream.flush()
            os.fsync(stream.fileno())
            stream.close()
        lengths = np.array(self._lengths, dtype="<i8")
        ends = np.cumsum(lengths) - lengths
        code = next(c for c, d in _DTYPES.items() if np.dtype(d) == self._dtype)
        index = self._unfinished.with_suffix(".idx")
        with index.open("wb") as stream:
            stream.write(_HEADER.pack(_MAGIC, 1, code, len(lengths), len(lengths) + 1))
            stream.write(lengths.astype("<i4").tobytes())
            stream.write((ends * self._dtype.itemsize).astype("<i8").tobytes())
            stream.write(np.arange(len(lengths) + 1, dtype="<i8").tobytes())
            stream.flush()
            os.fsync(stream.fileno())
        name = self._prefix.name
        os.replace(self._unfinished.with_suffix(".bin"), self._prefix.with_name(name + ".bin"))
        os.replace(index, self._prefix.with_name(name + ".idx"))

    def abandon(self) -> None:
        """Leave nothing behind."""
        self._data.close()
        for suffix in (".bin", ".idx"):
            self._unfinished.with_suffix(suffix).unlink(missing_ok=True)
