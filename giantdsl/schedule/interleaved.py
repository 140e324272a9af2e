"""Interleaved 1F1B: several stages on each rank (Narayanan et al. 2021, Megatron-LM)."""

from __future__ import annotations

from giantdsl.schedule.instructions import ComputeLists
from giantdsl.schedule.one_f_one_b import one_f_one_b
from giantdsl.schedule.order import alternate, backward_order, forward_order, microbatch_groups


def interleaved(num_ranks: int, num_stages: int, num_microbatches: int) -> ComputeLists:
    """Bubble (p - 1) / (v m + p - 1) with p ranks, v stages a rank and any m >= p microbatches.

    A bubble v times smaller than that of 1f1b, for v times the messages and more activations:
    rank r holds at most 2 (p - 1 - r) + (v - 1) g + 1 of a stage each, with g the size of the
    first group (p where p divides m, less than 2 p else). With v = 1 this is 1f1b.
    """
    if num_stages == num_ranks:
        return one_f_one_b(num_ranks, num_stages, num_microbatches)
    groups = microbatch_groups(num_ranks, num_microbatches)
    num_chunks = num_stages // num_ranks
    return tuple(
        tuple(
            alternate(
                forward_order(rank, num_ranks, num_stages, groups),
                backward_order(rank, num_ranks, num_stages, groups),
                # A backward takes two slots while the forwards of the ranks between take one:
                # twice the distance keeps everyone busy until the first gradient is here.
                num_warmup=2 * (num_ranks - 1 - rank) + (num_chunks - 1) * len(groups[0]),
            )
        )
        for rank in range(num_ranks)
    )
