"""Mixture of experts on one process: where tokens go, and back."""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor


class Route(NamedTuple):
    """The k experts of each token and their weights, [b, s, k], first choices first."""

    expert: Tensor
    weight: Tensor
    num_experts: int


def topk(probs: Tensor, k: int, *, renormalize: bool) -> Route:
    """The k most probable experts of each token. probs [b, s, experts]."""
    weight, index = probs.topk(k, dim=-1)
    if renormalize:
        weight = weight / weight.sum(-1, keepdim=True)
    return Route(expert=index, weight=weight, num_experts=probs.size(-1))


def slots(route: Route, capacity: float | None) -> tuple[Tensor, Tensor, int]:
    """Where each choice goes: its slot in its expert [b, s, k], whether it is kept, slots.

    Without a capacity an expert has as many slots as the busiest one needs. With one, each
    sequence gives an expert ceil(capacity * k * tokens / experts) slots; first choices of all its
    tokens come before second ones, and what does not fit is dropped (GShard, Lepikhin 2020).
    """
    b, k = route.expert.size(0), route.expert.size(-1)
    index = route.expert.reshape(b, -1, k)
    order = index.reshape(1, -1) if capacity is None else index.transpose(1, 2).reshape(b, -1)
    rank = rank_in_group(order, route.num_experts)
    if capacity is None:
        most = int(rank.max()) + 1 if rank.numel() else 0
        return rank.view_as(route.expert), torch.ones_like(route.expert, dtype=torch.bool), most
    each = math.ceil(capacity * k * index.size(1) / route.num_experts)
    rank = rank.view(b, k, -1).transpose(1, 2)
    sequence = torch.arange(b, device=rank.device)[:, None, None]
    slot = rank.clamp(max=each - 1) + sequence * each
    return slot.reshape(route.expert.shape), (rank < each).reshape(route.expert.shape), b * each


def rank_in_group(groups: Tensor, num_groups: int) -> Tensor:
    """Of each entry of a row [rows, n], how many before it in the row are in the same group."""
    rows, n = groups.shape
    keyed = groups + torch.arange(rows, device=groups.device)[:, None] * num_groups
    flat = keyed.flatten()
    order = flat.argsort(stable=True)
    counts = torch.bincount(flat, minlength=rows * num_groups)
    first = counts.cumsum(0) - counts
    rank = torch.empty_like(flat)
    rank[order] = torch.arange(rows * n, device=flat.device) - first[flat[order]]
    return rank.view(rows, n)


def dispatch(x: Tensor, route: Route, capacity: float | None = None) -> Tensor:
    """Tokens [b, s, d] to [experts, slot, d]; slots that no token takes are zero."""
    slot, kept, num_slots = slots(route, capacity)
    place = (route.expert * num_slots + slot)[kept]
    rows = x.unsqueeze(-2).expand(*route.expert.shape, x.size(-1))[kept]
    y = x.new_zeros(route.num_experts * num_slots, x.size(-1)).index_copy(0, place, rows)
    return y.view(route.num_experts, num_slots, x.size(-1))


def combine(y: Tensor, route: Route, capacity: float | None = None) -> Tensor:
    """[experts, slot, d] back to tokens [b, s, d]: the weighted sum over each one's experts."""
    slot, kept, num_slots = slots(route, capacity)
    rows = y.flatten(0, 1)[route.expert * num_slots + slot]
    return (rows * (route.weight * kept).unsqueeze(-1)).sum(-2)


def load_balance(probs: Tensor, route: Route) -> Tensor:
    """How unevenly experts are chosen; 1 choice each at random gives k.

    Per sequence, experts * sum over experts of (choices per token) * (mean probability)
    (Fedus 2021), then the mean over sequences, so that microbatches do not change it.
    """
    chosen = F.one_hot(route.expert, route.num_experts).sum(-2).to(probs.dtype)
    inner = tuple(range(1, probs.dim() - 1))
    return route.num_experts * (chosen.mean(inner) * probs.mean(inner)).sum(-1).mean()
