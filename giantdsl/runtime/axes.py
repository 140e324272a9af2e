"""How axes of tensors are divided over this rank's groups."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from giantdsl.mesh.slices import Bounds, bounds_of
from giantdsl.runtime.groups import Group, Groups


class Split:
    """What an emitted stage says of an axis: its size and the mesh axes that divide it.

    `padded` is what is divided evenly (default: `size`). A `sequence` may be shorter in a batch.
    """

    def __init__(
        self, size: int, *mesh: str, padded: int | None = None, sequence: bool = False
    ) -> None:
        self.size, self.mesh = size, mesh
        self.padded = size if padded is None else padded
        self.sequence = sequence


@dataclass(slots=True)
class Slices:
    """One axis divided over one group.

    `length` is what is divided here: the whole axis, or the part that slower mesh axes left.
    `bounds` are (start, stop) of every rank's part in it, `outer` the division by the slower
    mesh axis, if there is one.
    """

    group: Group
    length: int
    bounds: Bounds
    outer: Slices | None = None

    @property
    def start(self) -> int:
        return self.bounds[self.group.rank][0]

    @property
    def stop(self) -> int:
        return self.bounds[self.group.rank][1]

    @property
    def size(self) -> int:
        """Number of elements of this rank."""
        return self.stop - self.start

    @property
    def whole(self) -> int:
        """Number of elements of the axis, before any division."""
        return self.length if self.outer is None else self.outer.whole

    def index(self, device: torch.device | None = None) -> Tensor:
        """Place in the whole axis of each element of this rank, int64 [size]."""
        if self.outer is None:
            return torch.arange(self.start, self.stop, device=device)
        return self.outer.index(device)[self.start : self.stop]


class Axes:
    """The divided axes of a model on this rank.

    `axes.heads_tp` are the Slices of axis `heads` over tp; of an axis that several mesh axes
    divide, those of each. `axes.tp` is the group. `axes.size("s")` is what this rank has.
    Mesh axes of size 1 divide nothing: their Slices are the whole.
    """

    def __init__(self, groups: Groups, **splits: Split) -> None:
        self.groups = groups
        self._splits = splits
        self._slices: dict[str, Slices] = {}
        for name, split in splits.items():
            self._divide(name, split, split.size)

    def __getattr__(self, name: str) -> Slices | Group:
        if name.startswith("_") or name == "groups":
            raise AttributeError(name)
        if name in self._slices:
            return self._slices[name]
        return getattr(self.groups, name)

    def resize(self, **lengths: int) -> None:
        """The sequence lengths of the microbatch that comes next, whole, by axis."""
        for name, length in lengths.items():
            split = self._splits.get(name)
            if split is not None and self.whole(name) != length:
                self._divide(name, split, length)

    def size(self, axis: str) -> int:
        """Elements along a divided axis that this rank has."""
        split = self._splits[axis]
        return self._slices[f"{axis}_{split.mesh[-1]}"].size

    def whole(self, axis: str) -> int:
        return self._slices[f"{axis}_{self._splits[axis].mesh[0]}"].length

    def _divide(self, name: str, split: Split, length: int) -> None:
        outer: Slices | None = None
        for mesh_axis in split.mesh:
            group: Group = getattr(self.groups, mesh_axis)
            left = length if outer is None else outer.size
            bounds = bounds_of(left, max(split.padded, left), group.size, split.sequence)
            outer = Slices(group, left, bounds, outer)
            self._slices[f"{name}_{mesh_axis}"] = outer
