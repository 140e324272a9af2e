"""What is measured: an operation, a size, hosts of so many ranks."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

from giantdsl.errors import SettingsError

OPERATIONS = (
    "all_reduce",
    "reduce_scatter_tensor",
    "all_gather_into_tensor",
    "all_to_all_single",
    "broadcast",
)
BACKENDS = ("gloo", "giant")
SIZES = tuple(1024 * 4**i for i in range(9))
"""1 KiB to 64 MiB."""
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_ITEM_BYTES = 4


@dataclass(frozen=True, slots=True)
class Shape:
    """`hosts` hosts of `local` ranks each."""

    hosts: int
    local: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """`2x4`. Raises SettingsError."""
        found = re.fullmatch(r"([1-9]\d?)x([1-9]\d?)", text)
        if found is None:
            raise SettingsError(f"shape `{text}` is written HOSTSxRANKS, such as 2x4")
        return cls(int(found[1]), int(found[2]))

    @property
    def ranks(self) -> int:
        return self.hosts * self.local

    def __str__(self) -> str:
        return f"{self.hosts}x{self.local}"


@dataclass(frozen=True, slots=True)
class Cell:
    """`num_bytes` is the larger buffer of a rank: the buffer of all_reduce, broadcast and
    all_to_all_single, the input of reduce_scatter_tensor, the output of all_gather_into_tensor."""

    operation: str
    num_bytes: int

    def num_items(self, ranks: int) -> int:
        """float32 elements, a multiple of the number of ranks."""
        return max(1, round(self.num_bytes / _ITEM_BYTES / ranks)) * ranks


def parse_size(text: str) -> int:
    """`64k` and `4m` are binary; a bare number is bytes. Raises SettingsError."""
    found = re.fullmatch(r"(\d+)([kmg]?)(?:ib)?", text.strip().lower())
    if found is None or int(found[1]) == 0:
        raise SettingsError(f"size `{text}` is written like 1k, 64k or 4m")
    return int(found[1]) * _UNITS[found[2]]


def size_text(num_bytes: int) -> str:
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if num_bytes >= unit and num_bytes % unit == 0:
            return f"{num_bytes // unit} {name}"
    return f"{num_bytes} B"


def time_text(seconds: float) -> str:
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} us"
    if seconds < 0.1:
        return f"{seconds * 1e3:.1f} ms"
    return f"{seconds * 1e3:.0f} ms"


def parse_choices(text: str, known: tuple[str, ...], what: str) -> list[str]:
    """`a,b`, each one of `known`. Raises SettingsError."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    for word in words:
        if word not in known:
            raise SettingsError(f"no {what} `{word}`; there are {', '.join(known)}")
    if not words:
        raise SettingsError(f"no {what} is named; there are {', '.join(known)}")
    return list(dict.fromkeys(words))
