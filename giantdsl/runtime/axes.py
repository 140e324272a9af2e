"""How axes of tensors are divided over this rank's groups."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from giantdsl.mesh.slices import Bounds, bounds_of, cut_runs, run_lengths, zigzag_runs
from giantdsl.runtime.groups import Group, Groups


class Split:
    """What an emitted stage says of an axis: its size and the mesh axes that divide it.

    `padded` is what is divided evenly (default: `size`). A `sequence` may be shorter in a batch;
    under `zigzag` each rank of its slowest mesh axis has a run from the front and one from the
    back, which gives all the same work in causal attention.
    """

    def __init__(
        self,
        size: int,
        *mesh: str,
        padded: int | None = None,
        sequence: bool = False,
        zigzag: bool = False,
    ) -> None:
        self.size, self.mesh = size, mesh
        self.padded = size if padded is None else padded
        self.sequence, self.zigzag = sequence, zigzag


@dataclass(slots=True)
class Slices:
    """One axis divided over one group.

    `length` is what is divided here: the whole axis, or the part that slower mesh axes left.
    `parts` are every rank's runs (start, stop) in it, in the order in which the rank holds them:
    one run, but for a zigzag. `outer` is the division by the slower mesh axis, if there is one.
    """

    group: Group
    length: int
    parts: tuple[Bounds, ...]
    outer: Slices | None = None
    sizes: tuple[int, ...] = field(init=False)
    """Number of elements of every rank."""
    size: int = field(init=False)
    """Number of elements of this rank."""
    is_contiguous: bool = field(init=False)
    """Has every rank one run?"""
    is_even: bool = field(init=False)
    """Have all ranks as many elements?"""

    def __post_init__(self) -> None:
        self.sizes = tuple(sum(run_lengths(runs)) for runs in self.parts)
        self.size = self.sizes[self.group.rank]
        self.is_contiguous = all(len(runs) == 1 for runs in self.parts)
        self.is_even = len(set(self.sizes)) == 1

    @property
    def start(self) -> int:
        """Where this rank's only run begins."""
        ((start, _),) = self.parts[self.group.rank]
        return start

    @property
    def stop(self) -> int:
        ((_, stop),) = self.parts[self.group.rank]
        return stop

    @property
    def whole(self) -> int:
        """Number of elements of the axis, before any division."""
        return self.length if self.outer is None else self.outer.whole

    def runs(self, rank: int | None = None) -> Bounds:
        """The runs of a rank of the group, default this one, by place in the whole axis."""
        own = self.parts[self.group.rank if rank is None else rank]
        if self.outer is None:
            return own
        outer = self.outer.runs()
        return tuple(run for part in own for run in cut_runs(outer, *part))

    def index(self, device: torch.device | None = None) -> Tensor:
        """Place in the whole axis of each element of this rank, int64 [size]."""
        runs = [torch.arange(start, stop, device=device) for start, stop in self.runs()]
        if len(runs) == 1:
            return runs[0]
        return torch.cat([torch.empty(0, dtype=torch.int64, device=device), *runs])


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
            outer = Slices(group, left, _parts(split, left, group.size, outer is None), outer)
            self._slices[f"{name}_{mesh_axis}"] = outer


def _parts(split: Split, length: int, ranks: int, is_slowest: bool) -> tuple[Bounds, ...]:
    if split.zigzag and is_slowest and ranks > 1:
        return zigzag_runs(length, ranks)
    bounds = bounds_of(length, max(split.padded, length), ranks, split.sequence)
    return tuple((run,) for run in bounds)
