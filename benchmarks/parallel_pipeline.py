"""Pipelines: our executor against torch.distributed.pipelining on the same stage modules."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from parallel_setup import Case, build_rank, build_stages, even_shares, tokens
from parallel_timing import Row, Times, alternate, compare, of_all_ranks
from torch import Tensor, nn
from torch.distributed import pipelining

from giantdsl.plan import ParallelPlan, StageInfo
from giantdsl.runtime.rank_model import RankModel
from giantdsl.testing.ranks import RankPool
from giantdsl.train.many_ranks import ManyRanks

Part = Mapping[str, Tensor]
SCHEDULES = {"1f1b": ("1f1b", 1), "interleaved": ("interleaved(chunks=2)", 2)} | {
    "zero_bubble": ("zero_bubble", 1)
}
"""Of ours: its name in a spec, and the stages on a rank."""
PEERS = {
    "torch 1f1b": (pipelining.Schedule1F1B, "1f1b"),
    "torch interleaved": (pipelining.ScheduleInterleaved1F1B, "interleaved"),
    "torch zero bubble": (pipelining.ScheduleInterleavedZeroBubble, "interleaved"),
}
"""Of torch: the schedule, and which of ours has its stage modules."""


@dataclass(frozen=True, slots=True)
class Model:
    """`hidden` 0 is the trivial model, a linear layer of 8 a stage; else a GPT layer a stage."""

    hidden: int
    length: int = 128

    @property
    def name(self) -> str:
        return f"a GPT layer of {self.hidden} a stage" if self.hidden else "trivial stages"

    def case(self, world: int, schedule: str) -> Case:
        name, chunks = SCHEDULES[schedule]
        stages = world * chunks
        plan = (f"parallel.pp={world}", f"parallel.schedule={name}", f"dims.layers={stages}")
        if not self.hidden:
            return Case.of("trivial.giant", *plan)
        sizes = (f"dims.d={self.hidden}", f"dims.s={self.length}")
        return Case.of("gpt.giant", *plan, *sizes, "train.microbatch=1")

    def parts(self, count: int) -> list[dict[str, Tensor]]:
        """Microbatches of one sample."""
        if self.hidden:
            return [tokens(1, self.length, 256, seed) for seed in range(count)]
        generator = torch.Generator().manual_seed(0)
        drawn = [torch.randn(2, 1, 8, generator=generator) for _ in range(count)]
        return [{"x": pair[0], "y": pair[1]} for pair in drawn]


@dataclass(frozen=True, slots=True)
class Overhead:
    """What a stage costs on a microbatch beside its own passes, in microseconds.

    Of processor time, that of all ranks divided by stages and microbatches: the median over
    rounds, the least and the largest. `of_1f1b` is the median of the ratio to that of 1f1b in the
    same round. `instructions` and `messages` are how many there are for a stage and microbatch:
    of s stages, s - 1 send each way, so with more stages on a rank more cross for each.
    """

    what: str
    schedule: str
    microseconds: float
    low: float
    high: float
    of_1f1b: float
    instructions: float
    messages: float


def pipeline(
    pool: RankPool, rounds: int, world: int, model: Model, microbatches: int
) -> tuple[list[Row], list[Overhead]]:
    """Milliseconds for each stage and microbatch, and what of it is ours."""
    found = pool.run(on_rank, model, microbatches, rounds, ranks=world, timeout_s=600)
    times = of_all_ranks([each for each, _ in found])
    what = f"{model.name}, pp {world}, {microbatches} microbatches"
    overheads = _overheads(what, world, microbatches, times, [count for _, count in found])
    chunks = {name: SCHEDULES[name][1] for name in SCHEDULES}
    chunks |= {name: chunks[ours] for name, (_, ours) in PEERS.items()} | {"passes alone": 1}
    each = {name: t.per(microbatches * chunks[name]) for name, t in times.items()}
    pairs = [
        ("1f1b", "passes alone", None),
        ("1f1b", "torch 1f1b", 1.0),
        ("interleaved", "1f1b", 1.0),
        ("interleaved", "torch interleaved", 1.0),
        ("zero_bubble", "1f1b", 1.0),
        ("zero_bubble", "torch zero bubble", 1.0),
    ]
    return compare("pipeline", what, each, pairs), overheads


def _overheads(
    what: str,
    world: int,
    microbatches: int,
    times: Mapping[str, Times],
    counts: Sequence[Mapping[str, int]],
) -> list[Overhead]:
    found: list[Overhead] = []
    besides: dict[str, list[float]] = {}
    for schedule, (_, chunks) in SCHEDULES.items():
        stages = world * chunks
        pairs = zip(times[schedule].cpu, times["passes alone"].cpu, strict=True)
        beside = [(ours - chunks * alone) / (stages * microbatches) * 1e6 for ours, alone in pairs]
        besides[schedule] = beside
        found.append(
            Overhead(
                what=what,
                schedule=schedule,
                microseconds=statistics.median(beside),
                low=min(beside),
                high=max(beside),
                of_1f1b=statistics.median(
                    x / y for x, y in zip(beside, besides["1f1b"], strict=True)
                ),
                instructions=sum(count[schedule] for count in counts) / (stages * microbatches),
                messages=2 * (stages - 1) / stages,
            )
        )
    return found


# ---- on each rank ------------------------------------------------------------------------------


def on_rank(
    rank: int, world: int, model: Model, microbatches: int, rounds: int
) -> tuple[dict[str, Times], dict[str, int]]:
    """Times of all ways, and how many instructions each of our schedules has here."""
    parts = model.parts(microbatches)
    ours = {name: build_rank(model.case(world, name), rank) for name in SCHEDULES}
    runs = {name: our_run(many, parts) for name, many in ours.items()}
    built, plan = build_stages(model.case(world, "1f1b"), rank)
    runs["passes alone"] = passes_alone(built.stages[rank], plan.stages[rank], model, parts)
    for name, (schedule, whose) in PEERS.items():
        runs[name] = peer_run(schedule, *build_stages(model.case(world, whose), rank), parts)
    counts = {
        name: len(many.executor.schedule(microbatches, True).ranks[rank])
        for name, many in ours.items()
    }
    return alternate(runs, rounds, 1), counts


def our_run(many: ManyRanks, parts: Sequence[Part]) -> Callable[[], None]:
    shares, noise = even_shares(parts), [None] * len(parts)

    def run() -> None:
        many.executor.run(parts, noise, shares)

    return run


def passes_alone(
    module: nn.Module, info: StageInfo, model: Model, parts: Sequence[Part]
) -> Callable[[], None]:
    """Forward and backward of this rank's stage, with nobody to wait for."""
    shape = (1, model.length, model.hidden) if model.hidden else (1, 8)
    received = {name: torch.randn(shape, requires_grad=True) for name in info.receives}
    gradient = torch.randn(shape)

    def run() -> None:
        for part in parts:
            given = {name: part[name] for name in info.inputs}
            results = module(**given, **received)
            if info.losses:
                module.losses[info.losses[0]].backward()
            else:
                results[0].backward(gradient)
            for value in received.values():
                value.grad = None

    return run


class PeerStage(nn.Module):
    """An emitted stage as torch calls it: one tensor in, one out, the loss outside."""

    def __init__(self, module: nn.Module, info: StageInfo) -> None:
        super().__init__()
        self.module = module
        self.takes = info.receives[0] if info.receives else info.inputs[0]

    def forward(self, x: Tensor) -> Tensor:
        return self.module(**{self.takes: x})[0]


def peer_run(
    schedule: type, model: RankModel, plan: ParallelPlan, parts: Sequence[Part]
) -> Callable[[], None]:
    """torch's schedule over emitted stages."""
    infos = plan.stages
    stages = [
        pipelining.PipelineStage(
            PeerStage(module, infos[index]), index, len(infos), torch.device("cpu")
        )
        for index, module in model.stages.items()
    ]
    several = issubclass(schedule, pipelining.schedules.PipelineScheduleMulti)
    made = schedule(stages if several else stages[0], len(parts), loss_fn=loss_of)
    names = ("tokens", "labels") if "tokens" in parts[0] else ("x", "y")
    x, y = (torch.cat([part[name] for part in parts]) for name in names)
    first = (x,) if 0 in model.stages else ()
    is_last = len(infos) - 1 in model.stages

    def run() -> None:
        last = {"target": y, "losses": []} if is_last else {}
        made.step(*first, return_outputs=False, **last)

    return run


def loss_of(output: Tensor, target: Tensor) -> Tensor:
    if target.is_floating_point():
        return F.mse_loss(output, target)
    return F.cross_entropy(output.flatten(0, 1), target.flatten())
