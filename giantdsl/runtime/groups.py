"""This rank's process groups, one for each mesh axis."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch.distributed as dist

from giantdsl.mesh.mesh import Mesh

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Group:
    """The ranks that differ from this one along `name` only.

    `rank` is this one's place in it. `process_group` is None for a group of one, over which
    nothing is ever sent. `ranks` are global ranks in the order of their places.
    """

    name: str
    size: int
    rank: int
    ranks: tuple[int, ...]
    process_group: dist.ProcessGroup | None

    @property
    def sums_in_order(self) -> bool:
        """Does its backend add terms in an order that depends on the ranks alone?

        Then a tensor gets the same bits alone and within any bucket.
        """
        return self.process_group is not None and "giant" in self.process_group.name()


@dataclass(slots=True)
class Groups:
    """The groups of a rank in a mesh: `groups.tp`, or over several axes `groups.over("dp", "cp")`.

    Every rank of the job has to make its `Groups` at the same time, with the same `combined`: the
    sets of axes that `over` will be asked for. Processes must have joined a default group
    already, unless the mesh has one rank.
    """

    mesh: Mesh
    rank: int
    combined: frozenset[tuple[str, ...]] = frozenset()
    _made: dict[tuple[str, ...], Group] = field(default_factory=dict)

    @classmethod
    def make(
        cls,
        mesh: Mesh,
        rank: int,
        combined: Iterable[tuple[str, ...]] = (),
        *,
        timeout_s: float = 600.0,
        gradient_options: Any = None,
    ) -> Groups:
        """Raises what torch.distributed raises where ranks do not agree.

        `gradient_options`: the backend's options for the groups that sum gradients, over dp or over
        several axes; activations never go through these.
        """
        from datetime import timedelta

        made = cls(mesh, rank, frozenset(made_key(mesh, axes) for axes in combined))
        wanted = [*((axis,) for axis in mesh.axes), *sorted(made.combined)]
        created: dict[tuple[tuple[int, ...], bool], dist.ProcessGroup] = {}
        for axes in dict.fromkeys(wanted):
            is_special = gradient_options is not None and (axes == ("dp",) or len(axes) > 1)
            for ranks in mesh.groups(*axes) if axes else ():
                group = None
                if len(ranks) > 1:
                    group = created.get((ranks, is_special)) or dist.new_group(
                        list(ranks),
                        timeout=timedelta(seconds=timeout_s),
                        pg_options=gradient_options if is_special else None,
                    )
                    created[(ranks, is_special)] = group
                if rank in ranks:
                    made._made[axes] = Group(
                        "_".join(axes), len(ranks), ranks.index(rank), ranks, group
                    )
        return made

    @classmethod
    def single(cls) -> Groups:
        """One process: every group has size 1."""
        return cls.make(Mesh.of({}), 0)

    def __getattr__(self, axis: str) -> Group:
        made = object.__getattribute__(self, "_made")
        if (axis,) not in made:
            raise AttributeError(f"no mesh axis `{axis}`")
        return made[(axis,)]

    def over(self, *axes: str) -> Group:
        """The group along several axes; axes of size 1 do not matter."""
        split = made_key(self.mesh, axes)
        if not split:
            return Group("none", 1, 0, (self.rank,), None)
        return self._made[split]


def made_key(mesh: Mesh, axes: Iterable[str]) -> tuple[str, ...]:
    """The axes of more than one rank among `axes`, in the mesh's order."""
    asked = set(axes)
    return tuple(axis for axis in mesh.split_axes if axis in asked)


def from_first(group: Group, value: _T) -> _T:
    """The group's first rank's `value`, which is sent pickled, on all its ranks."""
    if group.process_group is None:
        return value
    box = [value]
    dist.broadcast_object_list(box, src=group.ranks[0], group=group.process_group)
    return box[0]
