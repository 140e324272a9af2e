"""Times of several ways to do the same, taken in turn, and what they are to each other."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch.distributed as dist


@dataclass(slots=True)
class Times:
    """Seconds of one call, by round: on the clock, and of this process's processors."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def per(self, count: float) -> Times:
        """Of one of `count` things that a call does."""
        return Times([t / count for t in self.wall], [t / count for t in self.cpu])


@dataclass(frozen=True, slots=True)
class Row:
    """Ours against a peer. `ratio` is ours / peer, the median over rounds; below 1 ours is faster.

    `low` and `high` are the least and the largest ratio of a round, `cpu_ratio` the same of
    processor time summed over ranks, which other processes disturb less. `target` is what the
    ratio should not exceed, where there is one. Times are medians, in milliseconds.
    """

    part: str
    what: str
    ours: str
    peer: str
    ours_ms: float
    peer_ms: float
    ratio: float
    low: float
    high: float
    cpu_ratio: float
    rounds: int
    target: float | None = None


def alternate(
    runs: Mapping[str, Callable[[], None]], rounds: int, calls: int, warm: int = 2
) -> dict[str, Times]:
    """Each way in turn, `calls` calls a round, in an order that flips each round.

    On several ranks all call it together; a round begins on all at once.
    """
    times = {name: Times() for name in runs}
    for run in runs.values():
        for _ in range(warm):
            run()
    for i in range(rounds):
        names = list(runs) if i % 2 == 0 else list(reversed(runs))
        for name in names:
            run = runs[name]
            if dist.is_initialized():
                dist.barrier()
            wall, cpu = time.perf_counter(), time.process_time()
            for _ in range(calls):
                run()
            times[name].wall.append((time.perf_counter() - wall) / calls)
            times[name].cpu.append((time.process_time() - cpu) / calls)
    return times


def of_all_ranks(ranks: Sequence[Mapping[str, Times]]) -> dict[str, Times]:
    """The slowest rank's clock and all ranks' processor time, round by round."""
    return {
        name: Times(
            [max(each) for each in zip(*(r[name].wall for r in ranks), strict=True)],
            [sum(each) for each in zip(*(r[name].cpu for r in ranks), strict=True)],
        )
        for name in ranks[0]
    }


def compare(
    part: str,
    what: str,
    times: Mapping[str, Times],
    pairs: Sequence[tuple[str, str, float | None]],
) -> list[Row]:
    """A row for each (ours, peer, target)."""
    rows: list[Row] = []
    for ours, peer, target in pairs:
        a, b = times[ours], times[peer]
        ratios = [x / y for x, y in zip(a.wall, b.wall, strict=True)]
        rows.append(
            Row(
                part=part,
                what=what,
                ours=ours,
                peer=peer,
                ours_ms=statistics.median(a.wall) * 1e3,
                peer_ms=statistics.median(b.wall) * 1e3,
                ratio=statistics.median(ratios),
                low=min(ratios),
                high=max(ratios),
                cpu_ratio=statistics.median(x / y for x, y in zip(a.cpu, b.cpu, strict=True)),
                rounds=len(ratios),
                target=target,
            )
        )
    return rows
