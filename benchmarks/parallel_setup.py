"""A rank of the benchmark model under a plan, as `giantdsl train` would build it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from giantdsl.driver import compile_spec
from giantdsl.plan import ParallelPlan
from giantdsl.planning import make_parallel_plan
from giantdsl.running import make_job
from giantdsl.runtime.groups import Groups
from giantdsl.runtime.rank_model import RankModel, build_rank_model, mesh_of
from giantdsl.train.job import TrainJob
from giantdsl.train.many_ranks import ManyRanks, build_many_ranks, group_sets

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True, slots=True)
class Case:
    """A spec of this folder under `overrides`: what every rank compiles for itself.

    `plan` is a file whose `parallel` section replaces the spec's.
    """

    spec: str
    overrides: tuple[str, ...]
    plan: str | None = None

    @classmethod
    def of(cls, spec: str, *overrides: str) -> Case:
        return cls(spec, overrides)

    @property
    def path(self) -> Path:
        return HERE / self.spec

    def compile(self) -> tuple[TrainJob, ParallelPlan]:
        plan = None if self.plan is None else HERE / self.plan
        compiled = compile_spec(self.path, overrides=self.overrides, plan_file=plan)
        return make_job(compiled), make_parallel_plan(compiled)


def build_rank(case: Case, rank: int) -> ManyRanks:
    """Every rank of the job calls it."""
    job, plan = case.compile()
    groups = Groups.make(mesh_of(plan), rank, group_sets(plan))
    return build_many_ranks(job, plan, groups, torch.device("cpu"))


def build_stages(case: Case, rank: int) -> tuple[RankModel, ParallelPlan]:
    """The modules alone: no optimizer has hooks on their parameters."""
    _, plan = case.compile()
    groups = Groups.make(mesh_of(plan), rank, group_sets(plan))
    return build_rank_model(plan, groups, torch.device("cpu"), 0, torch.float32), plan


def even_shares(parts: Sequence[object]) -> list[dict[str, float]]:
    """Microbatches of the same size weigh the same."""
    return [{"": 1 / len(parts), "lm": 1 / len(parts), "fit": 1 / len(parts)} for _ in parts]


def tokens(rows: int, length: int, vocab: int, seed: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randint(vocab, (rows, length + 1), generator=generator)
    return {"tokens": drawn[:, :-1].contiguous(), "labels": drawn[:, 1:].contiguous()}
