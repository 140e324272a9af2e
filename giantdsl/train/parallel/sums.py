"""Sums over a group whose bits depend on the terms only.

gloo's and NCCL's all-reduce add in an order that depends on where an element lies in the message,
so with three ranks and more the same gradient gets other bits when it is packed otherwise. There
each rank adds one chunk, in the order of ranks, and what is made of the chunks is the caller's
business: together they are an all-reduce, alone a reduce-scatter. The bytes on the wire are those
of a ring. Two ranks have only one order, and `giant` has one for any number: there the backend's
own all-reduce and reduce-scatter serve.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from giantdsl.runtime.groups import Group

# torch 2.13 gave them new names and deprecated the old ones.
_all_gather_single = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_reduce_scatter_single = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


@dataclass(slots=True)
class PendingSum:
    """A sum under way. Each rank of the group makes the same calls in the same order.

    `flat` has an equal chunk for each rank. `received` holds the terms of this rank's chunk, one
    after the other, or their sum, which the backend made. After `chunk()` this rank's chunk is known, after
    `gather()` and `wait()` all of `flat` is summed, in place.
    """

    flat: Tensor
    group: Group
    received: Tensor | None
    work: dist.Work | None

    def chunk(self, into: Tensor | None = None) -> Tensor:
        """The sum of this rank's chunk, a view of `flat`; with `into`, there and not in `flat`."""
        size = self.flat.numel() // self.group.size
        mine = self.flat[self.group.rank * size :][:size]
        self.wait()
        if self.received is not None:
            mine = mine if into is None else into
            if self.received.numel() == size:
                mine.copy_(self.received)
            else:
                _add_in_order(self.received.view(self.group.size, size), mine)
            self.received = None
            return mine
        return mine if into is None else into.copy_(mine)

    def gather(self) -> None:
        """Start to collect the chunks of all ranks, unless they are here already."""
        if self.received is not None:
            self.work = gather_chunks(self.flat, self.chunk(), self.group)

    def wait(self) -> None:
        if self.work is not None:
            self.work.wait()
            self.work = None


def start_sum(flat: Tensor, group: Group, *, scatter: bool = False) -> PendingSum:
    """Begin to sum `flat` over a group, without waiting.

    Shapes: flat (num_elements,) with num_elements % group.size == 0. With `scatter` only this
    rank's chunk is wanted. `flat` must not be touched until the sum is there.
    """
    assert flat.numel() % group.size == 0, f"{flat.numel()} elements for {group.size} ranks"
    if group.process_group is None or flat.numel() == 0:
        return PendingSum(flat, group, None, None)
    if group.sums_in_order and scatter:
        mine = torch.empty_like(flat[: flat.numel() // group.size])
        work = _reduce_scatter_single(mine, flat, group=group.process_group, async_op=True)
        return PendingSum(flat, group, mine, work)
    if group.sums_in_order or (group.size == 2 and not scatter):
        work = dist.all_reduce(flat, group=group.process_group, async_op=True)
        return PendingSum(flat, group, None, work)
    received = torch.empty_like(flat)
    work = dist.all_to_all_single(received, flat, group=group.process_group, async_op=True)
    return PendingSum(flat, group, received, work)


def gather_chunks(flat: Tensor, chunk: Tensor, group: Group) -> dist.Work | None:
    """Start to fill `flat` with the chunks of all ranks; `chunk` may be its part of `flat`."""
    if group.process_group is None or flat.numel() == 0:
        return None
    return _all_gather_single(flat, chunk, group=group.process_group, async_op=True)


def sum_over(tensor: Tensor, group: Group) -> Tensor:
    """The sum over a group, in place, waited for. Any shape; every rank calls it."""
    if group.process_group is None:
        return tensor
    each = -(-tensor.numel() // group.size)
    flat = tensor.new_zeros(each * group.size)
    flat[: tensor.numel()] = tensor.reshape(-1)
    pending = start_sum(flat, group)
    pending.gather()
    pending.wait()
    return tensor.copy_(flat[: tensor.numel()].view_as(tensor))


def _add_in_order(terms: Tensor, into: Tensor) -> None:
    """[ranks, n] -> [n], for two ranks or more. 16-bit types add up in float32."""
    if terms.dtype.itemsize < torch.float32.itemsize:
        total = terms[0].float()
        for term in terms[1:]:
            total.add_(term)
        into.copy_(total)
        return
    torch.add(terms[0], terms[1], out=into)
    for term in terms[2:]:
        into.add_(term)
