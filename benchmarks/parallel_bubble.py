"""The bubble of real steps against the one that the simulation foretells.

Only where each rank has a processor of its own does a bubble cost anything: ranks are pinned to a
core each, or held to a share of one by a cgroup's quota.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import torch
import torch.distributed as dist
from parallel_pipeline import Model
from parallel_setup import build_rank, even_shares

from giantdsl.runtime.messages import Arrival
from giantdsl.schedule.instructions import (
    Backward,
    BackwardInput,
    BackwardWeight,
    Forward,
    Schedule,
)
from giantdsl.schedule.simulate import Costs, simulate
from giantdsl.testing.ranks import RankPool
from giantdsl.train.many_ranks import ManyRanks

CGROUP = Path("/sys/fs/cgroup/cpu")
PERIOD_US = 10_000
Interval = tuple[float, float]
Steps = list[list[tuple[str, int, Interval, float]]]
"""By step: kind and stage of each pass, when it ran, and for how long of that it waited."""


@dataclass(frozen=True, slots=True)
class Bubble:
    """Idle shares of all ranks' time, 0 to 1; `low` and `high` over steps, `measured` the median."""

    what: str
    schedule: str
    measured: float
    low: float
    high: float
    simulated: float
    steps: int

    @property
    def points(self) -> float:
        """How far apart, in points of a percent."""
        return 100 * (self.measured - self.simulated)


def has_quota() -> bool:
    """Can a process be held to a share of a core here?"""
    return (CGROUP / "cpu.cfs_quota_us").exists() and os.access(CGROUP, os.W_OK)


def bubble(
    pool: RankPool,
    steps: int,
    world: int,
    model: Model,
    microbatches: int,
    schedule: str,
    quota: float | None,
) -> Bubble:
    """`quota` None: rank i is pinned to core i; else each has that share of a core."""
    found = pool.run(
        on_rank, model, microbatches, steps, schedule, quota, ranks=world, timeout_s=600
    )
    where = "a core each" if quota is None else f"{quota} of a core each"
    measured = [_bubble_of([rank[0][i] for rank in found]) for i in range(steps)]
    costs = _costs([rank[0] for rank in found])
    simulated = simulate(found[0][1], costs, latency=max(rank[2] for rank in found))
    return Bubble(
        f"{model.name}, pp {world}, {microbatches} microbatches, {where}",
        schedule,
        statistics.median(measured),
        min(measured),
        max(measured),
        simulated.bubble,
        steps,
    )


def _bubble_of(ranks: Sequence[list[tuple[str, int, Interval, float]]]) -> float:
    # Ranks enter a step when they like: it begins with the first pass that has nothing to wait for.
    start = min(span[0] + waited for rank in ranks for _, _, span, waited in rank)
    end = max(span[1] for rank in ranks for _, _, span, _ in rank)
    busy = sum(span[1] - span[0] - waited for rank in ranks for _, _, span, waited in rank)
    return 1 - busy / ((end - start) * len(ranks))


def _costs(ranks: Sequence[Steps]) -> list[Costs]:
    """The mean time of each stage's passes, without what they waited."""
    found: dict[tuple[int, str], list[float]] = {}
    for rank in ranks:
        for step in rank:
            for kind, stage, (start, end), waited in step:
                found.setdefault((stage, kind), []).append(end - start - waited)
    mean = {key: statistics.fmean(values) for key, values in found.items()}
    return [
        Costs(
            forward=mean[(stage, "Forward")],
            backward=mean.get((stage, "Backward"), 0.0),
            backward_input=mean.get((stage, "BackwardInput"), 0.0),
            backward_weight=mean.get((stage, "BackwardWeight"), 0.0),
        )
        for stage in sorted({stage for stage, _ in found})
    ]


# ---- on each rank ------------------------------------------------------------------------------


def on_rank(
    rank: int,
    world: int,
    model: Model,
    microbatches: int,
    steps: int,
    schedule: str,
    quota: float | None,
) -> tuple[Steps, Schedule, float]:
    """The passes of each step, the schedule they followed, and the seconds of a message."""
    with _own_processor(rank, quota):
        many = build_rank(model.case(world, schedule), rank)
        parts = model.parts(microbatches)
        seen = [_step(many, parts) for _ in range(steps + 1)]
        latency = _latency(rank, model)
    return seen[1:], many.executor.schedule(microbatches, True), latency


def _latency(rank: int, model: Model, times: int = 20) -> float:
    """Half a round trip between ranks 0 and 1 of what a stage sends for a microbatch; 0 elsewhere."""
    message = torch.zeros(model.length * model.hidden)
    trips: list[float] = []
    for _ in range(times if rank < 2 else 0):
        start = time.perf_counter()
        if rank == 0:
            dist.send(message, 1)
            dist.recv(message, 1)
        else:
            dist.recv(message, 0)
            dist.send(message, 0)
        trips.append((time.perf_counter() - start) / 2)
    dist.barrier()
    return statistics.median(trips) if trips else 0.0


def _step(many: ManyRanks, parts: Sequence[object]) -> list[tuple[str, int, Interval, float]]:
    waits: list[Interval] = []
    take = Arrival.take

    def timed(arrival: Arrival) -> object:
        start = time.perf_counter()
        values = take(arrival)
        waits.append((start, time.perf_counter()))
        return values

    many.executor.timeline = []
    dist.barrier()
    with mock.patch.object(Arrival, "take", timed):
        many.executor.run(parts, [None] * len(parts), even_shares(parts))
    passes = []
    for instruction, start, end in many.executor.timeline:
        if isinstance(instruction, Forward | Backward | BackwardInput | BackwardWeight):
            waited = sum(b - a for a, b in waits if start <= a and b <= end)
            kind = type(instruction).__name__
            passes.append((kind, instruction.stage, (start, end), waited))
    return passes


@contextlib.contextmanager
def _own_processor(rank: int, quota: float | None) -> Iterator[None]:
    if quota is None:
        before = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {sorted(before)[rank % len(before)]})
        try:
            yield
        finally:
            os.sched_setaffinity(0, before)
        return
    group = CGROUP / f"giantdsl-{os.getpid()}"
    group.mkdir()
    try:
        (group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
        (group / "cpu.cfs_quota_us").write_text(str(int(PERIOD_US * quota)))
        (group / "cgroup.procs").write_text(str(os.getpid()))
        yield
    finally:
        (CGROUP / "cgroup.procs").write_text(str(os.getpid()))
        group.rmdir()
