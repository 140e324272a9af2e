"""A batch that tries a model: random indices, holes in masks and labels."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from giantdsl.plan import InputInfo, Plan


def make_batch(
    plan: Plan, rows: int, seed: int, ignored: Mapping[str, int | None]
) -> dict[str, Tensor]:
    """`rows` samples of every input, float64, the same for the same seed.

    `ignored` are values that labels may have to be left out of a loss: some get them, and of
    more than two samples one gets nothing else. Flags are true at the front of a sequence and
    false at its end, from a place that differs from sample to sample.
    """
    draw = torch.Generator().manual_seed(seed)
    return {info.name: _made(info, rows, draw, ignored.get(info.name)) for info in plan.inputs}


def _made(info: InputInfo, rows: int, draw: torch.Generator, ignore: int | None) -> Tensor:
    shape = [rows if size is None else size for size in info.sizes]
    if info.dtype == "float" and info.loss_only:
        # It may weigh terms of a loss: a sum of weights near zero would only show rounding errors.
        return 0.5 + torch.rand(shape, generator=draw, dtype=torch.float64)
    if info.dtype == "float":
        return torch.randn(shape, generator=draw, dtype=torch.float64)
    if info.dtype == "bool":
        return _flags(info, shape, draw)
    found = torch.randint(info.num_classes or 2, shape, generator=draw)
    if ignore is None:
        return found
    hidden = torch.rand(shape, generator=draw) < 0.2
    if rows > 2 and info.sizes[0] is None:
        hidden[1] = True
    return found.masked_fill(hidden, ignore)


def _flags(info: InputInfo, shape: list[int], draw: torch.Generator) -> Tensor:
    if not info.seq:
        return torch.rand(shape, generator=draw) < 0.7
    at = info.seq[-1]
    length = shape[at]
    ends = torch.randint((length + 1) // 2, length + 1, shape[:at], generator=draw)
    places = torch.arange(length)
    front = places < ends.unsqueeze(-1)
    for _ in shape[at + 1 :]:
        front = front.unsqueeze(-1)
    return front.expand(shape).contiguous()
