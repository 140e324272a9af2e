"""Groups of the ranks that hold one tied parameter: the same place on all axes but pp."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta

import torch.distributed as dist

from giantdsl.mesh.mesh import Mesh
from giantdsl.plan import ParallelPlan
from giantdsl.runtime.groups import Group
from giantdsl.train.parallel.ownership import Ownership

PipelineRanks = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TieGroups:
    """By places on pp that share parameters, this rank's group; absent where it is not one of them."""

    groups: Mapping[PipelineRanks, Group]

    @classmethod
    def make(cls, plan: ParallelPlan, rank: int, *, timeout_s: float = 600.0) -> TieGroups:
        """Every rank of the job makes them at the same time."""
        ownership = Ownership.of(plan)
        tied = {tuple(sorted(ownership.pipeline_ranks(p))) for p in plan.parameters}
        made: dict[PipelineRanks, Group] = {}
        for places in sorted(places for places in tied if len(places) > 1):
            for ranks in _tied_ranks(ownership.mesh, places):
                group = dist.new_group(list(ranks), timeout=timedelta(seconds=timeout_s))
                if rank in ranks:
                    made[places] = Group("tied", len(ranks), ranks.index(rank), ranks, group)
        return cls(made)

    def of(self, places: PipelineRanks) -> Group | None:
        """The group of parameters held at these places; None for one place."""
        return self.groups[places] if places else None


def _tied_ranks(mesh: Mesh, places: PipelineRanks) -> Iterable[tuple[int, ...]]:
    for first in mesh.groups("pp"):
        yield tuple(first[place] for place in places)
