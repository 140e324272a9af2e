"""1F1B with one stage on each rank (PipeDream-Flush, Narayanan et al. 2021)."""

from __future__ import annotations

from giantdsl.schedule.instructions import ComputeLists
from giantdsl.schedule.order import alternate, backward_order, forward_order


def one_f_one_b(num_ranks: int, num_stages: int, num_microbatches: int) -> ComputeLists:
    """Rank r has at most min(m, p - r) microbatches in flight.

    Bubble (p - 1) / (m + p - 1) with p ranks and m microbatches, as gpipe. More stages than
    ranks is `interleaved`.
    """
    assert num_stages == num_ranks, f"{num_stages} stages on {num_ranks} ranks: interleaved"
    groups = (range(num_microbatches),)
    return tuple(
        tuple(
            alternate(
                forward_order(rank, num_ranks, num_stages, groups),
                backward_order(rank, num_ranks, num_stages, groups),
                num_warmup=num_ranks - 1 - rank,
            )
        )
        for rank in range(num_ranks)
    )
