"""Conversions between whole and divided tensors, each with its backward pass.

The pairs are those of Megatron's mappings; which is meant where is decided by the compiler
(language.md 3.2). A group of one rank does nothing at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from giantdsl.mesh.slices import run_lengths
from giantdsl.runtime.axes import Slices
from giantdsl.runtime.group_calls import gather_into, sum_in_place, sum_part_into
from giantdsl.runtime.groups import Group

_NARROW = (torch.float16, torch.bfloat16)


def copy_to(x: Tensor, group: Group) -> Tensor:
    """x, whole; its gradient is summed over the group.

    Megatron's copy_to_tensor_model_parallel_region.
    """
    return x if group.size == 1 else _CopyTo.apply(x, group)


def reduce_from(x: Tensor, group: Group) -> Tensor:
    """The sum of all ranks' x; the gradient goes to each as it is.

    Megatron's reduce_from_tensor_model_parallel_region.
    """
    return x if group.size == 1 else _ReduceFrom.apply(x, group)


def all_gather(x: Tensor, slices: Slices, dim: int) -> Tensor:
    """All parts along `dim`; the backward pass sums gradients and keeps this rank's part.

    Megatron's gather_from_sequence_parallel_region.
    """
    return x if slices.group.size == 1 else _AllGather.apply(x, slices, dim)


def gather_whole(x: Tensor, slices: Slices, dim: int) -> Tensor:
    """All parts along `dim`; gradients are the same on all ranks, and each keeps its part.

    Megatron's gather_from_tensor_model_parallel_region.
    """
    return x if slices.group.size == 1 else _GatherWhole.apply(x, slices, dim)


def scatter(x: Tensor, slices: Slices, dim: int) -> Tensor:
    """This rank's part of a whole x; the backward pass gathers the gradient's parts.

    Megatron's scatter_to_sequence_parallel_region.
    """
    return x if slices.group.size == 1 else _Scatter.apply(x, slices, dim)


def reduce_scatter(x: Tensor, slices: Slices, dim: int) -> Tensor:
    """This rank's part of the sum of all ranks' x; the backward pass gathers.

    Megatron's reduce_scatter_to_sequence_parallel_region.
    """
    return x if slices.group.size == 1 else _ReduceScatter.apply(x, slices, dim)


def local(x: Tensor, slices: Slices, dim: int) -> Tensor:
    """This rank's part of x, without communication: its gradient is zero elsewhere."""
    return x if slices.group.size == 1 else own_part(x, slices, dim)


# ---- without gradients ---------------------------------------------------------------------


def all_reduced(x: Tensor, group: Group) -> Tensor:
    """A new tensor: the sum over the group. 16-bit floats add up in float32."""
    if x.dtype in _NARROW:
        wide = x.float()
        sum_in_place(wide, group)
        return wide.to(x.dtype)
    total = x.clone(memory_format=torch.contiguous_format)
    sum_in_place(total, group)
    return total


def own_part(x: Tensor, slices: Slices, dim: int) -> Tensor:
    """This rank's part of a whole x, a view where it is one run."""
    if slices.is_contiguous:
        return x.narrow(dim, slices.start, slices.size)
    return _runs_of(x, slices.parts[slices.group.rank], dim)


def gathered(x: Tensor, slices: Slices, dim: int) -> Tensor:
    """The parts of all ranks along `dim`, each element in its place."""
    joined = _joined(x, slices, dim)
    if slices.is_contiguous:
        return joined
    runs = [run for part in slices.parts for run in part]
    pieces = zip(runs, joined.split(run_lengths(runs), dim), strict=True)
    return torch.cat([piece for _, piece in sorted(pieces, key=lambda item: item[0])], dim)


def _joined(x: Tensor, slices: Slices, dim: int) -> Tensor:
    """The parts of all ranks in the order of the ranks; they may differ in size."""
    dim = dim % x.dim()
    if slices.is_even:
        return _joined_evenly(x, slices.group, dim)
    most = max(slices.sizes)
    padded = _joined_evenly(_padded(x, dim, most), slices.group, dim)
    parts = zip(padded.split(most, dim), slices.sizes, strict=True)
    return torch.cat([each.narrow(dim, 0, size) for each, size in parts], dim)


def _joined_evenly(x: Tensor, group: Group, dim: int) -> Tensor:
    if x.dtype is torch.bool:
        return _joined_evenly(x.view(torch.uint8), group, dim).view(torch.bool)
    part = x.contiguous()
    whole = part.new_empty((group.size * part.size(0), *part.shape[1:]))
    gather_into(whole, part, group)
    if dim == 0:
        return whole
    # Without a copy where nothing but ones lies before `dim`.
    return whole.view(group.size, *part.shape).movedim(0, dim).flatten(dim, dim + 1)


def reduce_scattered(x: Tensor, slices: Slices, dim: int) -> Tensor:
    """This rank's part along `dim` of the sum over the group."""
    if not slices.is_contiguous:
        x = _runs_of(x, [run for part in slices.parts for run in part], dim)
    dim = dim % x.dim()
    if slices.is_even:
        return _reduce_scattered_evenly(x, slices.group, dim)
    most = max(slices.sizes)
    x = torch.cat([_padded(part, dim, most) for part in x.split(slices.sizes, dim)], dim)
    return _reduce_scattered_evenly(x, slices.group, dim).narrow(dim, 0, slices.size)


def _reduce_scattered_evenly(x: Tensor, group: Group, dim: int) -> Tensor:
    if x.dtype in _NARROW:
        return _reduce_scattered_evenly(x.float(), group, dim).to(x.dtype)
    if dim > 0:
        before, each, after = x.shape[:dim], x.size(dim) // group.size, x.shape[dim + 1 :]
        x = x.view(*before, group.size, each, *after).movedim(dim, 0).flatten(0, 1)
    x = x.contiguous()
    own = x.new_empty((x.size(0) // group.size, *x.shape[1:]))
    sum_part_into(own, x, group)
    return own


def _runs_of(x: Tensor, runs: Sequence[tuple[int, int]], dim: int) -> Tensor:
    return torch.cat([x.narrow(dim, start, stop - start) for start, stop in runs], dim)


def _padded(x: Tensor, dim: int, size: int) -> Tensor:
    lacking = size - x.size(dim)
    if lacking == 0:
        return x
    shape = list(x.shape)
    shape[dim] = lacking
    return torch.cat([x, x.new_zeros(shape)], dim)


# ---- with gradients ------------------------------------------------------------------------


class _CopyTo(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Group) -> Tensor:
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return all_reduced(gradients[0], ctx.group), None


class _ReduceFrom(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Group) -> Tensor:
        return all_reduced(x, group)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return gradients[0], None


class _AllGather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, slices: Slices, dim: int) -> Tensor:
        ctx.place = slices, dim
        return gathered(x, slices, dim)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return reduce_scattered(gradients[0], *ctx.place), None, None


class _GatherWhole(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, slices: Slices, dim: int) -> Tensor:
        ctx.place = slices, dim
        return gathered(x, slices, dim)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        slices, dim = ctx.place
        return own_part(gradients[0], slices, dim), None, None


class _Scatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, slices: Slices, dim: int) -> Tensor:
        ctx.place = slices, dim
        return own_part(x, slices, dim).contiguous()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return gathered(gradients[0], *ctx.place), None, None


class _ReduceScatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, slices: Slices, dim: int) -> Tensor:
        ctx.place = slices, dim
        return reduce_scattered(x, slices, dim)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return gathered(gradients[0], *ctx.place), None, None
