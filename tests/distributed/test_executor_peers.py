"""The executor beside torch.distributed.pipelining, and with a sequence divided over ranks."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

from giantdsl.mesh.mesh import Mesh
from giantdsl.plan import ParallelPlan
from giantdsl.runtime.axes import Axes, Split
from giantdsl.runtime.collectives import reduce_from
from giantdsl.runtime.executor import Executor
from giantdsl.runtime.groups import Groups
from giantdsl.testing.ranks import RankPool
from tests.distributed.toy_pipeline import LENGTH, VALUES, VOCAB, D, parallel_plan

WIDTH = 5


def small_plan(mesh: dict[str, int], schedule: str = "1f1b") -> ParallelPlan:
    """Only `x` crosses, only `lm` is a loss."""
    pp = mesh["pp"]
    plan = parallel_plan(schedule, mesh, pp)
    stages = tuple(
        replace(
            stage,
            inputs=("tokens",)
            if stage.index == 0
            else ("labels",)
            if stage.index == pp - 1
            else (),
            receives=("x",) if stage.index > 0 else (),
            makes=("x",) if stage.index < pp - 1 else (),
            sends=("x",) if stage.index < pp - 1 else (),
            outputs=(),
            draws=False,
        )
        for stage in plan.stages
    )
    return replace(plan, stages=stages, values=VALUES[:1])


class Layers(nn.Module):
    """A stage's layers, without anything of ours: tokens or x in, x out."""

    def __init__(self, index: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(index)
        self.embed = nn.Embedding(VOCAB, D, dtype=torch.float64) if index == 0 else None
        self.mix = nn.Linear(D, D, dtype=torch.float64)
        for parameter in self.parameters():
            parameter.data = torch.randn(parameter.shape, generator=generator).double()

    def forward(self, x: Tensor) -> Tensor:
        x = x if self.embed is None else self.embed(x)
        return torch.tanh(self.mix(x))


class Ours(nn.Module):
    """The same layers as a stage of a plan."""

    def __init__(self, index: int, is_last: bool) -> None:
        super().__init__()
        self.layers, self.is_last = Layers(index), is_last
        self.losses: dict[str, Tensor] = {}

    def forward(
        self, x: Tensor | None = None, tokens: Tensor | None = None, labels: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        y = self.layers(tokens if x is None else x)
        if self.is_last:
            self.losses = {"lm": loss_of(y, labels)}
        return () if self.is_last else (y,)


def loss_of(y: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(y.flatten(0, 1), labels.flatten() % D)


def data() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    shape = (12, WIDTH)
    return (
        torch.randint(VOCAB, shape, generator=generator),
        torch.randint(VOCAB, shape, generator=generator),
    )


def both(rank: int, world: int, count: int) -> tuple[float, float]:
    """The largest difference of gradients and of losses between ours and theirs."""
    tokens, labels = data()
    groups = Groups.make(Mesh.of({"pp": world}), rank)
    ours = Ours(rank, rank == world - 1)
    executor = Executor(
        small_plan({"pp": world}), groups, {rank: ours}, Axes(groups), dtype=torch.float64
    )
    parts = [
        {"tokens": t, "labels": y}
        for t, y in zip(tokens.chunk(count), labels.chunk(count), strict=True)
    ]
    found = executor.run(parts, [None] * count, [{"": 1 / count}] * count)

    theirs = Layers(rank)
    stage = PipelineStage(theirs, rank, world, torch.device("cpu"), group=dist.group.WORLD)
    schedule = Schedule1F1B(stage, count, loss_fn=loss_of)
    losses: list[Tensor] = []
    is_last = rank == world - 1
    schedule.step(
        *((tokens,) if rank == 0 else ()),
        target=labels if is_last else None,
        losses=losses if is_last else None,
    )
    pairs = zip(ours.layers.parameters(), theirs.parameters(), strict=True)
    error = max((a.grad - b.grad).abs().max().item() for a, b in pairs)
    off = abs(found["lm"].item() - sum(x.item() for x in losses) / count) if is_last else 0.0
    return error, off


@pytest.mark.parametrize(("pp", "count"), [(2, 4), (3, 6)])
def test_gradients_are_those_of_torch_pipelining(ranks: RankPool, pp: int, count: int) -> None:
    for error, off in ranks.run(both, count, ranks=pp):
        assert error < 1e-14
        assert off < 1e-14


# ---- a divided sequence --------------------------------------------------------------------


class Sliced(nn.Module):
    """The same, each rank with its part of the sequence."""

    def __init__(self, axes: Axes, index: int, is_last: bool) -> None:
        super().__init__()
        self.axes, self.layers, self.is_last = axes, Layers(index), is_last
        self.losses: dict[str, Tensor] = {}

    def forward(
        self, x: Tensor | None = None, tokens: Tensor | None = None, labels: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        part = self.axes.s_cp
        y = self.layers(tokens[:, part.start : part.stop] if x is None else x)
        if not self.is_last:
            return (y,)
        own = labels[:, part.start : part.stop]
        total = F.cross_entropy(y.flatten(0, 1), own.flatten() % D, reduction="sum")
        self.losses = {"lm": reduce_from(total, self.axes.cp) / labels.numel()}
        return ()


def run_sliced(rank: int, world: int, lengths: tuple[int, ...]) -> tuple[float, dict[str, Tensor]]:
    groups = Groups.make(Mesh.of({"pp": 2, "cp": 2}), rank)
    axes = Axes(groups, s=Split(LENGTH, "cp", sequence=True))
    at = groups.pp.rank
    stage = Sliced(axes, at, at == 1)
    plan = small_plan({"pp": 2, "cp": 2}, "zero_bubble")
    executor = Executor(plan, groups, {at: stage}, axes, dtype=torch.float64)
    tokens, labels = data()
    parts = [{"tokens": tokens[:, :n], "labels": labels[:, :n]} for n in lengths]
    losses = executor.run(parts, [None] * len(parts), [{"": 0.5}] * len(parts))
    for parameter in stage.parameters():
        dist.all_reduce(parameter.grad, group=groups.cp.process_group)
    found = {n: p.grad for n, p in stage.named_parameters()}
    return losses["lm"].item() if losses else 0.0, found


@pytest.mark.parametrize("lengths", [(5, 4, 3), (1, 5)], ids=str)
def test_sequences_divided_unevenly_and_empty_parts(
    ranks: RankPool, lengths: tuple[int, ...]
) -> None:
    """Of a sequence of one, the second rank has nothing to send."""
    results = ranks.run(run_sliced, lengths, ranks=4)
    stages = [Ours(0, False), Ours(1, True)]
    tokens, labels = data()
    total = torch.zeros((), dtype=torch.float64)
    for n in lengths:
        (x,) = stages[0](tokens=tokens[:, :n])
        stages[1](x=x, labels=labels[:, :n])
        total = total + stages[1].losses["lm"] / 2
    total.backward()
    for rank, (loss, gradients) in enumerate(results):
        stage = stages[rank // 2]
        assert loss == pytest.approx(total.item() if rank >= 2 else 0.0, rel=1e-13)
        for name, parameter in stage.named_parameters():
            assert torch.allclose(gradients[name], parameter.grad, rtol=0, atol=1e-13), name
