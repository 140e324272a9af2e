"""Layers whose weights or inputs are divided."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from giantdsl.runtime.axes import Slices
from giantdsl.runtime.weight_gradients import fused_linear


def fused(x: Tensor, *layers: nn.Linear) -> tuple[Tensor, ...]:
    """Several linear layers of one input as one matrix product."""
    return fused_linear(x, layers).split([layer.weight.size(0) for layer in layers], dim=-1)


def embedding(x: Tensor, weight: Tensor, rows: Slices) -> Tensor:
    """Rows of a table of which this rank has a part: zeros for the others, so ranks add up.

    x [..], weight [rows of this rank, d]: [.., d].
    """
    if rows.group.size == 1:
        return F.embedding(x, weight)
    inside = (x >= rows.start) & (x < rows.stop)
    if rows.size == 0:
        return weight.new_zeros((*x.shape, weight.size(1))) + 0.0 * weight.sum()
    place = torch.where(inside, x - rows.start, 0)
    return F.embedding(place, weight) * inside.unsqueeze(-1).to(weight.dtype)


def pick(x: Tensor, slices: Slices, dim: int, at: int) -> Tensor:
    """Element `at` of the whole axis `dim`: on the rank that has it; zeros on the others."""
    place = at % slices.whole
    found = (slices.index(x.device) == place).nonzero()
    if found.numel():
        return x.select(dim, int(found))
    shape = [size for i, size in enumerate(x.shape) if i != dim % x.dim()]
    zeros = x.new_zeros(shape)
    # Joined to x, so that every rank has the same graph.
    return zeros + 0 * x.sum() if x.is_floating_point() else zeros
