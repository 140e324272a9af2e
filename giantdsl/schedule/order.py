"""In which order the chunks of a rank take the microbatches.

A rank with v stages has v chunks: chunk c is stage c * num_ranks + rank. Microbatches go through
the chunks in groups: a whole group through chunk 0, then through chunk 1, and so on.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from giantdsl.schedule.instructions import Backward, Compute, Forward


def microbatch_groups(num_ranks: int, num_microbatches: int) -> tuple[range, ...]:
    """Groups as even as they go and none smaller than `num_ranks`, the larger ones first.

    With num_ranks in a group the first microbatch has come around just when chunk 1 is free for
    it. A last group that is smaller, which is what cutting by num_ranks leaves, stalls the
    pipeline, and where the remainder is small it even deadlocks (4 ranks, 3 chunks, 5 microbatches).
    Fewer microbatches than ranks are one group.
    """
    num_groups = max(1, num_microbatches // num_ranks)
    each, more = divmod(num_microbatches, num_groups)
    starts = [i * each + min(i, more) for i in range(num_groups + 1)]
    return tuple(range(start, stop) for start, stop in itertools.pairwise(starts))


def forward_order(
    rank: int, num_ranks: int, num_stages: int, groups: Sequence[range]
) -> list[Compute]:
    """The forward passes of a rank, group by group, each chunk after chunk."""
    stages = range(rank, num_stages, num_ranks)
    return [Forward(stage, i) for group in groups for stage in stages for i in group]


def backward_order(
    rank: int, num_ranks: int, num_stages: int, groups: Sequence[range]
) -> list[Compute]:
    """The same for backward passes: the last chunk first."""
    stages = range(rank, num_stages, num_ranks)[::-1]
    return [Backward(stage, i) for group in groups for stage in stages for i in group]


def alternate(
    forwards: Sequence[Compute], backwards: Sequence[Compute], num_warmup: int
) -> list[Compute]:
    """`num_warmup` forwards, then one forward and one backward in turn, then what is left."""
    num_warmup = min(num_warmup, len(forwards))
    program = list(forwards[:num_warmup])
    steady = forwards[num_warmup:]
    for forward, backward in zip(steady, backwards, strict=False):
        program += [forward, backward]
    return program + list(backwards[len(steady) :])
