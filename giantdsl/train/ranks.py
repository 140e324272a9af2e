"""This process as one of many ranks of a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist

from giantdsl.plan import ParallelPlan
from giantdsl.runtime.groups import Groups
from giantdsl.runtime.rank_model import mesh_of
from giantdsl.train.job import RunResult, TrainJob
from giantdsl.train.launch.context import RankContext
from giantdsl.train.launch.failure import Progress
from giantdsl.train.many_ranks import group_sets

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Ranks:
    """The plan all ranks carry out together, and this one's place among them."""

    plan: ParallelPlan
    groups: Groups
    local_rank: int
    progress: Progress

    @property
    def is_first(self) -> bool:
        return self.groups.rank == 0

    def device(self, named: str | None) -> str | None:
        """One accelerator a rank, where there are any and none is named."""
        if named is None and torch.accelerator.is_available():
            current = torch.accelerator.current_accelerator()
            assert current is not None, "an accelerator that is available"
            return f"{current.type}:{self.local_rank % torch.accelerator.device_count()}"
        return named

    def note(self, stage: int, instruction: str) -> None:
        """Where this rank stands, for the message if it fails."""
        self.progress.note(stage=stage, instruction=instruction)

    def first_decides(self, choose: Callable[[], T]) -> T:
        """What `choose` gives on the first rank, on all of them."""
        box: list[Any] = [choose() if self.is_first else None]
        dist.broadcast_object_list(box, src=0)
        return cast(T, box[0])

    def wait_for_all(self) -> None:
        dist.barrier()


@dataclass(frozen=True, slots=True)
class RankJob:
    """What every rank gets. `compress` is how gradients go between hosts: None, bf16 or int8."""

    job: TrainJob
    plan: ParallelPlan
    no_color: bool = False
    compress: str | None = None


def run_rank(context: RankContext, argument: RankJob) -> RunResult:
    """Train as one rank, inside a process group: what `launch` calls."""
    from rich.console import Console

    from giantdsl.train.loop import run

    plan = argument.plan
    rank = context.rank
    groups = Groups.make(
        mesh_of(plan),
        rank.rank,
        group_sets(plan),
        gradient_options=_gradient_options(argument.compress),
    )
    ranks = Ranks(plan, groups, rank.local_rank, context.progress)
    console = Console(stderr=True, no_color=argument.no_color)
    return run(replace(argument.job, console=console), ranks)


def _gradient_options(compress: str | None) -> Any:
    """Options of the groups that sum gradients; None: those of all groups."""
    if compress is None:
        return None
    from giantdsl.backends.giant import load

    return load().Options(compression=compress)
