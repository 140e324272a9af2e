"""Sums and gathers over a group, called on the group itself; each waits.

What torch.distributed's functions of these names look up, check and log at each call never
changes here. Without it a layer of hidden size 64 sliced over two ranks takes a twentieth less
(benchmarks/parallel_slices.py).
"""

from __future__ import annotations

import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import (
    AllgatherOptions,
    AllreduceOptions,
    ReduceScatterOptions,
)

from giantdsl.runtime.groups import Group

# torch 2.13 has new names for these and warns of the old functions.
_all_gather = getattr(dist.ProcessGroup, "all_gather_single", dist.ProcessGroup._allgather_base)
_reduce_scatter = getattr(
    dist.ProcessGroup, "reduce_scatter_single", dist.ProcessGroup._reduce_scatter_base
)
_SUM, _GATHER, _SUM_PARTS = AllreduceOptions(), AllgatherOptions(), ReduceScatterOptions()
for _options in (_SUM, _GATHER, _SUM_PARTS):
    # Else NCCL takes a stream of its own, as if there were something to do meanwhile.
    _options.asyncOp = False


def sum_in_place(x: Tensor, group: Group) -> None:
    """x, contiguous, becomes the sum of all ranks' x."""
    assert group.process_group is not None, "a group of one sends nothing"
    _wait(group.process_group.allreduce([x], _SUM))


def gather_into(whole: Tensor, part: Tensor, group: Group) -> None:
    """All ranks' parts, as large as each other, one after the other along dimension 0."""
    _wait(_all_gather(group.process_group, whole, part, _GATHER))


def sum_part_into(own: Tensor, whole: Tensor, group: Group) -> None:
    """This rank's part along dimension 0 of the sum of all ranks' `whole`."""
    _wait(_reduce_scatter(group.process_group, own, whole, _SUM_PARTS))


def _wait(work: dist.Work | None) -> None:
    """Some backends return nothing of what they wait for themselves."""
    if work is not None:
        work.wait()
