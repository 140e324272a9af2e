"""Which part of a logical parameter a rank holds, and on which rank an element counts.

Pure integers: any rank can say it of any other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from giantdsl.mesh.mesh import Mesh
from giantdsl.mesh.slices import bounds_of
from giantdsl.plan import AxisSplit, ParallelPlan, StoredParameter
from giantdsl.runtime.rank_model import mesh_of

Coordinate = Mapping[str, int]
Box = tuple[tuple[int, int], ...]
"""(start, stop) along each axis of a parameter's view."""


@dataclass(frozen=True, slots=True)
class Ownership:
    """How the parameters of a plan lie on a mesh."""

    mesh: Mesh
    splits: Mapping[str, AxisSplit]

    @classmethod
    def of(cls, plan: ParallelPlan) -> Ownership:
        return cls(mesh_of(plan), {split.axis: split for split in plan.splits})

    def split_axes(self, stored: StoredParameter) -> tuple[str, ...]:
        """The mesh axes of more than one rank that divide the parameter, in the mesh's order."""
        over = {m for _, name in stored.splits for m in self.splits[name].mesh}
        return tuple(axis for axis in self.mesh.split_axes if axis in over)

    def sum_axes(self, stored: StoredParameter) -> tuple[str, ...]:
        """The mesh axes of more than one rank over which gradients are summed."""
        return tuple(axis for axis in self.mesh.split_axes if axis in stored.sum_over)

    def pipeline_ranks(self, stored: StoredParameter) -> tuple[int, ...]:
        """The places on pp that hold the parameter, that of its first stage first."""
        return tuple(dict.fromkeys(stage % self._size("pp") for stage in stored.stages))

    def holds(self, stored: StoredParameter, at: Coordinate) -> bool:
        return at.get("pp", 0) in self.pipeline_ranks(stored)

    def replica_axes(self, stored: StoredParameter) -> tuple[str, ...]:
        """The mesh axes along which other ranks hold the same elements; pp only where tied."""
        split = self.split_axes(stored)
        axes = [axis for axis in self.mesh.split_axes if axis not in (*split, "pp")]
        return ("pp", *axes) if len(self.pipeline_ranks(stored)) > 1 else tuple(axes)

    def counts(self, stored: StoredParameter, at: Coordinate, divided: Sequence[str] = ()) -> bool:
        """Is this the first of the ranks that hold these elements (invariant 3)?

        `divided` are mesh axes over which copies share the work: there, each rank counts its own.
        """
        if at.get("pp", 0) != self.pipeline_ranks(stored)[0]:
            return False
        axes = (a for a in self.replica_axes(stored) if a != "pp" and a not in divided)
        return all(at[axis] == 0 for axis in axes)

    def box(self, stored: StoredParameter, at: Coordinate) -> Box:
        """The elements that a rank holds, as bounds along the axes of `stored.view`."""
        box = [(0, size) for size in stored.view]
        for position, name in stored.splits:
            box[position] = self.bounds(self.splits[name], at)
        return tuple(box)

    def bounds(self, split: AxisSplit, at: Coordinate) -> tuple[int, int]:
        """(start, stop) of a rank's part of an axis: the slowest mesh axis divides first."""
        start, stop, padded = 0, split.size, max(split.padded, split.size)
        for axis in split.mesh:
            left, parts = stop - start, self._size(axis)
            places = bounds_of(left, padded, parts, split.sequence)
            padded //= parts
            first, last = places[at.get(axis, 0)]
            start, stop = start + first, start + last
        return start, stop

    def largest(self, stored: StoredParameter) -> int:
        """Elements of the largest part that a rank holds: the same number on every rank."""
        sizes = list(stored.view)
        for position, name in stored.splits:
            sizes[position] = self._largest_part(self.splits[name])
        return math.prod(sizes)

    def _largest_part(self, split: AxisSplit) -> int:
        coordinates: list[dict[str, int]] = [{}]
        for axis in split.mesh:
            places = range(self._size(axis))
            coordinates = [{**at, axis: place} for at in coordinates for place in places]
        return max(stop - start for start, stop in (self.bounds(split, at) for at in coordinates))

    def _size(self, axis: str) -> int:
        return self.mesh.axis_size(axis) if axis in self.mesh.axes else 1


def volume(box: Box) -> int:
    return math.prod(stop - start for start, stop in box)


def dims_of(stored: StoredParameter) -> tuple[tuple[int, ...], ...]:
    """For each dimension of the tensor, the positions in `view` of the axes that make it up."""
    return group_axes(stored.info.shape, stored.view)


def group_axes(shape: Sequence[int], view: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Which consecutive axes of `view` each size of `shape` is the product of."""
    groups: list[tuple[int, ...]] = []
    position = 0
    for size in shape:
        first, product = position, 1
        while position < len(view) and (product < size or position == first):
            product *= view[position]
            position += 1
        assert product == size, f"view {tuple(view)} does not make up shape {tuple(shape)}"
        groups.append(tuple(range(first, position)))
    if groups:
        groups[-1] = (*groups[-1], *range(position, len(view)))
    assert math.prod(view[position:]) == 1, f"view {tuple(view)} is larger than {tuple(shape)}"
    return tuple(groups)


def local_shape(stored: StoredParameter, box: Box) -> tuple[int, ...]:
    """The shape of the tensor that holds a box."""
    sizes = [stop - start for start, stop in box]
    return tuple(math.prod(sizes[i] for i in axes) for axes in dims_of(stored))


def counted_elements(ownership: Ownership, parameters: Sequence[StoredParameter], rank: int) -> int:
    """Elements that count on a rank; summed over ranks, the model's number of parameters."""
    at = ownership.mesh.coordinate(rank)
    return sum(volume(ownership.box(p, at)) for p in parameters if ownership.counts(p, at))
