"""The device mesh: named axes, ranks and their coordinates, groups along axes. Pure integers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

MESH_AXES = ("pp", "dp", "cp", "ep", "tp")
"""The five axes, outermost first: neighbours on the last one are neighbours in rank."""


@dataclass(frozen=True, slots=True)
class Mesh:
    """A grid of ranks. `axes` are outermost first, `sizes` follow them.

    The rank of a coordinate is its number in row-major order: the last axis varies fastest.
    """

    axes: tuple[str, ...]
    sizes: tuple[int, ...]

    def __post_init__(self) -> None:
        assert len(self.axes) == len(self.sizes), "one size for each mesh axis"
        assert len(set(self.axes)) == len(self.axes), f"mesh axes {self.axes} repeat"
        assert all(size >= 1 for size in self.sizes), f"mesh sizes {self.sizes} start at 1"

    @classmethod
    def of(cls, sizes: Mapping[str, int], order: Sequence[str] = MESH_AXES) -> Mesh:
        """A mesh in the given order; an axis that `sizes` lacks has size 1."""
        unknown = set(sizes) - set(order)
        assert not unknown, f"mesh axes {sorted(unknown)} are not in the order {tuple(order)}"
        return cls(tuple(order), tuple(sizes.get(axis, 1) for axis in order))

    @property
    def size(self) -> int:
        """Number of ranks."""
        return math.prod(self.sizes)

    @property
    def split_axes(self) -> tuple[str, ...]:
        """The axes with more than one rank."""
        return tuple(a for a, size in zip(self.axes, self.sizes, strict=True) if size > 1)

    def axis_size(self, axis: str) -> int:
        return self.sizes[self.axes.index(axis)]

    def stride(self, axis: str) -> int:
        """Distance in rank between neighbours on `axis`."""
        return math.prod(self.sizes[self.axes.index(axis) + 1 :])

    def coordinate(self, rank: int) -> dict[str, int]:
        """Position of a rank on every axis, in the order of `axes`."""
        assert 0 <= rank < self.size, f"rank {rank} of a mesh of {self.size}"
        return {a: rank // self.stride(a) % self.axis_size(a) for a in self.axes}

    def rank(self, coordinate: Mapping[str, int]) -> int:
        """The rank at a coordinate; axes that it lacks count as 0."""
        unknown = set(coordinate) - set(self.axes)
        assert not unknown, f"no mesh axis {sorted(unknown)}"
        rank = 0
        for axis, size in zip(self.axes, self.sizes, strict=True):
            position = coordinate.get(axis, 0)
            assert 0 <= position < size, f"position {position} on {axis} = {size}"
            rank = rank * size + position
        return rank

    def group(self, rank: int, *along: str) -> tuple[int, ...]:
        """The ranks that differ from `rank` on the axes `along` only, itself included.

        They come in rank order, so a rank's place in its group is the same function of its
        coordinate everywhere: with several axes, the outermost one counts most.
        """
        here = self.coordinate(rank)
        axes = [axis for axis in self.axes if axis in along]
        assert len(axes) == len(set(along)), f"no mesh axis among {along}"
        ranges = [range(self.axis_size(axis)) for axis in axes]
        return tuple(
            self.rank({**here, **dict(zip(axes, place, strict=True))})
            for place in itertools.product(*ranges)
        )

    def groups(self, *along: str) -> Iterator[tuple[int, ...]]:
        """All groups along these axes, ordered by their first rank; every rank is in one."""
        seen: set[int] = set()
        for rank in range(self.size):
            if rank not in seen:
                group = self.group(rank, *along)
                seen.update(group)
                yield group

    def neighbour(self, rank: int, axis: str, step: int) -> int:
        """The rank `step` further on `axis`, around the end."""
        here = self.coordinate(rank)
        return self.rank({**here, axis: (here[axis] + step) % self.axis_size(axis)})
