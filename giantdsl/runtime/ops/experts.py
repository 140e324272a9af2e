"""Experts on several ranks: tokens go to them and come back (Lepikhin 2020, GShard)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

from giantdsl.runtime.axes import Slices
from giantdsl.runtime.collectives import reduce_from
from giantdsl.runtime.groups import Group
from giantdsl.runtime.prelude import experts as prelude

topk = prelude.topk
Route = prelude.Route


def dispatch(
    x: Tensor, route: Route, capacity: float | None = None, ep: Group | None = None
) -> Tensor:
    """Tokens [b, s, d] to [experts of this rank, slot, d]; slots that no token takes are zero.

    Over `ep` both the rows of the batch and the experts are divided: every choice of an expert is
    a row that goes to the rank of that expert. Without a capacity there are as many slots as
    the busiest expert of this rank has rows.
    """
    if ep is None or ep.size == 1:
        return prelude.dispatch(x, route, capacity)
    trip = _trip(route, capacity, ep)
    rows = x.flatten(0, -2).index_select(0, trip.token)
    arrived = _Exchange.apply(rows, trip.sent, trip.received, ep)
    y = x.new_zeros(trip.experts * trip.slots, x.size(-1))
    return y.index_copy(0, trip.place, arrived).view(trip.experts, trip.slots, x.size(-1))


def combine(
    y: Tensor, route: Route, capacity: float | None = None, ep: Group | None = None
) -> Tensor:
    """[experts of this rank, slot, d] back to tokens [b, s, d]: the weighted sum of each one's."""
    if ep is None or ep.size == 1:
        return prelude.combine(y, route, capacity)
    trip = _trip(route, capacity, ep)
    rows = y.flatten(0, 1).index_select(0, trip.place)
    back = _Exchange.apply(rows, trip.received, trip.sent, ep)
    weight = route.weight.flatten().index_select(0, trip.choice)
    shape = route.weight.shape[:-1]
    out = y.new_zeros(shape.numel(), y.size(-1))
    return out.index_add(0, trip.token, back * weight.unsqueeze(-1)).view(*shape, y.size(-1))


def load_balance(probs: Tensor, route: Route, over: Slices | None = None) -> Tensor:
    """How unevenly experts are chosen, as in the prelude; `over`: the sequence is divided."""
    if over is None or over.group.size == 1:
        return prelude.load_balance(probs, route)
    chosen = F.one_hot(route.expert, route.num_experts).sum(-2).to(probs.dtype)
    inner = tuple(range(1, probs.dim() - 1))
    count = over.whole
    share = reduce_from(chosen.sum(inner), over.group) / count
    mean = reduce_from(probs.sum(inner), over.group) / count
    return route.num_experts * (share * mean).sum(-1).mean()


@dataclass(frozen=True, slots=True)
class _Trip:
    """Which rows go where. Rows are kept choices in order of expert, then of token.

    `token` and `choice` [rows] number the token and the choice of each row that leaves; `sent`
    and `received` count rows by rank. `place` [rows that arrive] is their slot among all slots.
    """

    token: Tensor
    choice: Tensor
    sent: list[int]
    received: list[int]
    place: Tensor
    experts: int
    slots: int


def _trip(route: Route, capacity: float | None, ep: Group) -> _Trip:
    expert, k = route.expert.flatten(), route.expert.size(-1)
    _, kept, _ = prelude.slots(route, capacity)
    choice = kept.flatten().nonzero().squeeze(-1)
    choice = choice[expert[choice].argsort(stable=True)]
    local = route.num_experts // ep.size
    counts = torch.bincount(expert[choice], minlength=route.num_experts)
    arriving = torch.empty_like(counts)
    dist.all_to_all_single(arriving, counts, group=ep.process_group)
    table = arriving.view(ep.size, local)
    sent = counts.view(ep.size, local).sum(1).tolist()
    received = table.sum(1).tolist()
    slots = int(table.sum(0).max()) if table.numel() else 0
    return _Trip(choice // k, choice, sent, received, _places(table, slots), local, slots)


def _places(table: Tensor, slots: int) -> Tensor:
    """The slot of each arriving row: rows come rank by rank, in each expert by expert.

    An expert's slots are filled in the order of the ranks. table [ranks, experts]: rows.
    """
    ranks, experts = table.shape
    before = table.cumsum(0) - table
    expert = torch.arange(experts, device=table.device).repeat(ranks)
    first = (expert * slots + before.flatten()).repeat_interleave(table.flatten())
    starts = table.flatten().cumsum(0) - table.flatten()
    within = torch.arange(int(table.sum()), device=table.device)
    return first + within - starts.repeat_interleave(table.flatten())


class _Exchange(torch.autograd.Function):
    """Rows to other ranks, counted by rank; gradients take the same way back."""

    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, sent: list[int], received: list[int], group: Group
    ) -> Tensor:
        ctx.place = sent, received, group
        return _exchanged(rows, sent, received, group)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        sent, received, group = ctx.place
        return _exchanged(gradients[0], received, sent, group), None, None, None


def _exchanged(rows: Tensor, sent: list[int], received: list[int], group: Group) -> Tensor:
    arrived = rows.new_empty((sum(received), *rows.shape[1:]))
    dist.all_to_all_single(arrived, rows.contiguous(), received, sent, group=group.process_group)
    return arrived
