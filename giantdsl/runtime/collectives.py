"""Conversions between whole and divided tensors, each with its backward pass.

The pairs are those of Megatron's mappings; which is meant where is decided by the compiler
(language.md 3.2). A group of one rank does nothing at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from giantdsl.mesh.slices import run_lengths
from giantdsl.runtime.axes import Slices
from giantdsl.runtime.groups import Group

_NARROW = (torch.float16, torch.bfloat16)
# torch 2.13 has new names for these and warns of the old ones.
_all_gather = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)
_reduce_scatter = getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)


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
        dist.all_reduce(wide, group=group.process_group)
        return wide.to(x.dtype)
    total = x.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(total, group=group.process_group)
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
    sizes = slices.sizes
    most = max(sizes)
    part = _padded(x, dim, most).contiguous()
    is_flag = part.dtype is torch.bool
    part = part.view(torch.uint8) if is_flag else part
    stacked = part.new_empty((len(sizes), *part.shape))
    _all_gather(stacked.flatten(0, 1), part, group=slices.group.process_group)
    stacked = stacked.view(torch.bool) if is_flag else stacked
    if min(sizes) < most:
        parts = zip(stacked.unbind(), sizes, strict=True)
        return torch.cat([each.narrow(dim, 0, size) for each, size in parts], dim)
    # Without a copy where nothing but ones lies before `dim`.
    return stacked.movedim(0, dim).flatten(dim, dim + 1)


def reduce_scattered(x: Tensor, slices: Slices, dim: int) -> Tensor:
    """This rank's part along `dim` of the sum over the group."""
    if not slices.is_contiguous:
        x = _runs_of(x, [run for part in slices.parts for run in part], dim)
    dim = dim % x.dim()
    sizes = slices.sizes
    most = max(sizes)
    if min(sizes) < most:
        stacked = torch.stack([_padded(part, dim, most) for part in x.split(sizes, dim)])
    else:
        stacked = x.unflatten(dim, (len(sizes), most)).movedim(dim, 0)
    is_narrow = x.dtype in _NARROW
    wide = (stacked.float() if is_narrow else stacked).contiguous()
    own = wide.new_empty(wide.shape[1:])
    _reduce_scatter(own, wide.flatten(0, 1), group=slices.group.process_group)
    own = own if slices.size == most else own.narrow(dim, 0, slices.size)
    return own.to(x.dtype) if is_narrow else own


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
