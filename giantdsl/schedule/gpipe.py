"""GPipe (Huang et al. 2019), and forward passes alone."""

from __future__ import annotations

from giantdsl.schedule.instructions import ComputeLists
from giantdsl.schedule.order import backward_order, forward_order, microbatch_groups


def gpipe(num_ranks: int, num_stages: int, num_microbatches: int) -> ComputeLists:
    """All forwards, then all backwards.

    Bubble (p - 1) / (v m + p - 1) with p ranks, v stages a rank and m >= p microbatches (with
    v = 1 any m); every microbatch is in flight at once: v m activations on each rank.
    Several chunks go breadth first (Lamy-Poirier 2022): the whole batch through each.
    """
    groups = (range(num_microbatches),)
    return tuple(
        (
            *forward_order(rank, num_ranks, num_stages, groups),
            *backward_order(rank, num_ranks, num_stages, groups),
        )
        for rank in range(num_ranks)
    )


def forward_only(num_ranks: int, num_stages: int, num_microbatches: int) -> ComputeLists:
    """For evaluation. Nothing is kept for a backward pass.

    Groups go through the chunks as in `interleaved`, so that few microbatches are under way.
    """
    groups = microbatch_groups(num_ranks, num_microbatches)
    return tuple(
        tuple(forward_order(rank, num_ranks, num_stages, groups)) for rank in range(num_ranks)
    )
