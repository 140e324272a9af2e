"""Named axes and the types of values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from giantdsl.source import Span


class AxisKind(Enum):
    BATCH = "batch"
    SEQ = "seq"
    FEATURE = "feature"
    RAGGED = "ragged"


def base_axis(name: str) -> str:
    """`s` of `s'`: a primed axis has the size and kind of the plain one."""
    return name[:-1] if name.endswith("'") else name


@dataclass(frozen=True, slots=True)
class Axis:
    """A named axis of `dims`.

    `size` is in elements, padding included; None for a batch and for a dropless ragged axis.
    `logical` is the size without padding where `pad` gave the axis some, else None.
    `factors` are the axes of a product (`h = ny * py`), `terms` those of a sum (`s = one + p`).
    """

    name: str
    kind: AxisKind
    size: int | None
    logical: int | None
    factors: tuple[str, ...]
    terms: tuple[str, ...]
    span: Span

    @property
    def extent(self) -> int | None:
        """Number of meaningful elements: what is counted, stored and summed over."""
        return self.size if self.logical is None else self.logical


FLOAT, INT, BOOL, ROUTE = "float", "int", "bool", "route"
CACHE = "cache"
"""Keys and values of earlier tokens: only in programs that `passes/inference.py` makes."""
BUILTIN_DTYPES = (FLOAT, INT, BOOL)


@dataclass(frozen=True, slots=True)
class TensorType:
    """`[b, s]: vocab`. Axes are in memory order.

    `dtype` is float, int, bool, route (the opaque result of `topk`), or the name of the axis
    that the integers index. `at` holds layouts written in the spec: (axis, mesh axis) pairs.
    """

    axes: tuple[str, ...]
    dtype: str = FLOAT
    at: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        layout = dict(self.at)
        axes = ", ".join(f"{a}@{layout[a]}" if a in layout else a for a in self.axes)
        return f"[{axes}]" + ("" if self.dtype == FLOAT else f": {self.dtype}")
