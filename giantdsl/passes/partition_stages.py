"""Where to cut a row of units into stages."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

_UNREACHED = float("inf")


def partition_stages(weights: Sequence[float], num_stages: int) -> tuple[int, ...]:
    """Number of units of each stage, in order: every stage has at least one.

    The heaviest stage is as light as it can be; among those the sum of squared loads is
    smallest, so the rest is even too; then the earlier stages are the shorter ones, since they
    hold the most microbatches in flight. Exact: dynamic programming over contiguous cuts, time
    O(units * stages * longest legal stage).

    Args:
      weights: what each unit costs, at least 0, in any unit.
      num_stages: from 1 to the number of units.
    """
    num_units = len(weights)
    assert 1 <= num_stages <= num_units, f"{num_stages} stages of {num_units} units"
    assert all(weight >= 0 for weight in weights), "weights are at least 0"
    sums = list(itertools.accumulate(weights, initial=0))
    limit = lightest_heaviest(sums, num_stages)
    # best[i]: least sum of squares for units i.. in `stages` stages; next_cut[stages][i]: its cut.
    best: list[float] = [_UNREACHED] * num_units + [0]
    next_cut: list[list[int]] = [[]]
    for stages in range(1, num_stages + 1):
        best, cuts = _one_more_stage(sums, best, num_units - stages, limit)
        next_cut.append(cuts)
    counts: list[int] = []
    at = 0
    for stages in range(num_stages, 0, -1):
        cut = next_cut[stages][at]
        counts.append(cut - at)
        at = cut
    return tuple(counts)


def _one_more_stage(
    sums: Sequence[float], best: Sequence[float], last_start: int, limit: float
) -> tuple[list[float], list[int]]:
    """`best` and its first cuts with a stage put in front."""
    num_units = len(sums) - 1
    new: list[float] = [_UNREACHED] * (num_units + 1)
    cuts = [0] * (num_units + 1)
    for start in range(last_start + 1):
        for end in range(start + 1, num_units + 1):
            load = sums[end] - sums[start]
            if load > limit:
                break
            total = load * load + best[end]
            if total < new[start]:
                new[start] = total
                cuts[start] = end
    return new, cuts


def lightest_heaviest(sums: Sequence[float], num_stages: int) -> float:
    """The least possible load of the heaviest stage; `sums` are running sums from 0."""
    num_units = len(sums) - 1
    heaviest = [sums[num_units] - sums[start] for start in range(num_units)]
    for stages in range(2, num_stages + 1):
        for start in range(num_units - stages + 1):
            heaviest[start] = _best_first_cut(sums, heaviest, start, num_units - stages + 1)
    return heaviest[0]


def _best_first_cut(
    sums: Sequence[float], heaviest: Sequence[float], start: int, last: int
) -> float:
    """The least over `end` of max(load of start..end, heaviest[end]).

    The first grows and the second falls as `end` moves right: bisect for where they cross.
    """
    low, high = start + 1, last
    while low < high:
        middle = (low + high) // 2
        if sums[middle] - sums[start] >= heaviest[middle]:
            high = middle
        else:
            low = middle + 1
    crossing = max(sums[low] - sums[start], heaviest[low])
    if low > start + 1:
        crossing = min(crossing, max(sums[low - 1] - sums[start], heaviest[low - 1]))
    return crossing
