"""What a microbatch says of sizes: its rows, the lengths of its sequences, shapes of its values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from giantdsl.errors import InternalError
from giantdsl.plan import InputInfo, ValueInfo
from giantdsl.runtime.axes import Axes

Lengths = tuple[tuple[str, int], ...]
"""Whole lengths by sequence axis."""


@dataclass(frozen=True, slots=True)
class Extent:
    """`rows` of the batch on this data rank, and whole lengths by sequence axis.

    `rows` is None where no input has a batch axis. Hashable: layouts are kept by it.
    """

    rows: int | None
    lengths: Lengths


def extent_of(part: Mapping[str, Tensor], inputs: Sequence[InputInfo]) -> Extent:
    """Read off the input tensors."""
    rows: int | None = None
    lengths: dict[str, int] = {}
    for info in inputs:
        tensor = part.get(info.name)
        if tensor is None:
            continue
        if rows is None and None in info.sizes:
            rows = tensor.size(info.sizes.index(None))
        for at in info.seq:
            lengths[base_axis(info.axes[at])] = tensor.size(at)
    return Extent(rows, tuple(sorted(lengths.items())))


def local_shape(value: ValueInfo, extent: Extent, axes: Axes) -> tuple[int, ...]:
    """A value's shape on this rank; `axes` have the lengths of `extent`."""
    lengths = dict(extent.lengths)
    shape: list[int] = []
    for axis, size, split in zip(value.axes, value.sizes, value.split, strict=True):
        base = base_axis(axis)
        if size is None:
            if extent.rows is None:
                raise InternalError(f"`{value.name}` has a batch axis, but no input has")
            shape.append(extent.rows)
        elif any(axes.groups.mesh.axis_size(mesh_axis) > 1 for mesh_axis in split):
            shape.append(axes.size(base))
        else:
            shape.append(lengths.get(base, size))
    return tuple(shape)


def base_axis(axis: str) -> str:
    """`s` of `s'`: two axes of one tensor that are the same axis."""
    return axis.rstrip("'")
