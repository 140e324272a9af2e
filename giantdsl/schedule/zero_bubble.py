"""ZB-H1: backward split in two, weight gradients fill the bubble (Qi et al. 2023)."""

from __future__ import annotations

from collections.abc import Sequence

from giantdsl.schedule.instructions import (
    BackwardInput,
    BackwardWeight,
    Compute,
    ComputeLists,
    Forward,
)
from giantdsl.schedule.order import alternate, backward_order, forward_order, microbatch_groups


def zero_bubble(num_ranks: int, num_stages: int, num_microbatches: int) -> ComputeLists:
    """Bubble (p - 1) / (3 v m + p - 1) where F, BI and BW cost the same and m >= p.

    A third of 1f1b's and of interleaved's. Rank r puts its weight gradients off by r microbatches:
    gradients of inputs run ahead to the first rank, which has none to put off, and all ranks end
    together. No rank holds more than (v - 1) g + p activations, g as in `interleaved`: never
    more than the first rank of 1f1b or interleaved holds.
    """
    groups = microbatch_groups(num_ranks, num_microbatches)
    num_chunks = num_stages // num_ranks
    return tuple(
        tuple(
            split_backward(
                alternate(
                    forward_order(rank, num_ranks, num_stages, groups),
                    backward_order(rank, num_ranks, num_stages, groups),
                    # Less than interleaved's: gradients come back at one slot a rank.
                    num_warmup=num_ranks - 1 - rank + (num_chunks - 1) * len(groups[0]),
                ),
                delay=rank,
            )
        )
        for rank in range(num_ranks)
    )


def split_backward(program: Sequence[Compute], delay: int) -> list[Compute]:
    """Each Backward becomes BackwardInput; its BackwardWeight comes `delay` backwards later."""
    split: list[Compute] = []
    waiting: list[Compute] = []
    for instruction in program:
        if isinstance(instruction, Forward):
            split.append(instruction)
            continue
        stage, microbatch = instruction.stage, instruction.microbatch
        split.append(BackwardInput(stage, microbatch))
        waiting.append(BackwardWeight(stage, microbatch))
        if len(waiting) > delay:
            split.append(waiting.pop(0))
    return split + waiting
