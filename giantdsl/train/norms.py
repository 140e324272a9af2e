"""Norms that hardly depend on how tensors are cut: sums in float64.

A float32 sum over a large sparse gradient is off by 1e-4, and differently for each layout.
"""

from __future__ import annotations

import torch
from torch import Tensor

from giantdsl.runtime.device import wide_dtype

_BLOCK = 2**18
"""Elements that are widened at a time: a larger copy costs several times as much, as the memory
for it comes from the system anew each time."""


def sum_of_squares(tensor: Tensor) -> Tensor:
    """The sum over all elements in float64, a scalar: hardly depends on how a tensor is cut."""
    wide = wide_dtype(tensor.device)
    flat = tensor.detach().reshape(-1)
    if tensor.device.type != "cpu":
        return torch.linalg.vector_norm(flat, dtype=wide).square()
    if flat.numel() <= _BLOCK:
        block = flat.to(wide)
        return torch.dot(block, block)
    # On the CPU three times as fast as a norm in another type than the tensor's.
    blocks = (block.to(wide) for block in flat.split(_BLOCK))
    return torch.stack([torch.dot(block, block) for block in blocks]).sum()
