"""A GPT layer as the peers slice it: by hand after Megatron's functions, and with DTensor."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

_all_gather = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)
_reduce_scatter = getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)


class Attention(nn.Module):
    """One product for q, k and v. `parts` is how many ranks share the heads."""

    def __init__(self, dim: int, heads: int, parts: int = 1) -> None:
        super().__init__()
        self.head_dim = dim // heads
        self.qkv = nn.Linear(dim, 3 * dim // parts)
        self.out = nn.Linear(dim // parts, dim)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(attend(self.qkv(x), self.head_dim))


def attend(qkv: Tensor, head_dim: int) -> Tensor:
    """[b, s, heads * 3 * head_dim] to [b, s, heads * head_dim]."""
    b, s, _ = qkv.shape
    q, k, v = qkv.view(b, s, -1, 3, head_dim).permute(3, 0, 2, 1, 4).unbind(0)
    o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return o.transpose(1, 2).reshape(b, s, -1)


class Mlp(nn.Module):
    def __init__(self, dim: int, parts: int = 1) -> None:
        super().__init__()
        self.up = nn.Linear(dim, 4 * dim // parts)
        self.down = nn.Linear(4 * dim // parts, dim)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.gelu(self.up(x)))


class Layer(nn.Module):
    """With `parts` > 1: what one of that many ranks computes, without any communication."""

    def __init__(self, dim: int, heads: int, parts: int = 1) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim)
        self.attention = Attention(dim, heads, parts)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = Mlp(dim, parts)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


# ---- by hand: Megatron's functions -----------------------------------------------------------


class _Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        gradient = gradients[0].contiguous()
        dist.all_reduce(gradient, group=ctx.group)
        return gradient, None


class _Reduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, group: dist.ProcessGroup) -> Tensor:
        x = x.contiguous()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return gradients[0], None


def _gather(x: Tensor, group: dist.ProcessGroup) -> Tensor:
    size = dist.get_world_size(group)
    b, s, d = x.shape
    whole = x.new_empty(size * b, s, d)
    _all_gather(whole, x.contiguous(), group=group)
    return whole.view(size, b, s, d).transpose(0, 1).reshape(b, size * s, d)


def _reduce_part(x: Tensor, group: dist.ProcessGroup) -> Tensor:
    size = dist.get_world_size(group)
    b, s, d = x.shape
    parts = x.view(b, size, s // size, d).transpose(0, 1).contiguous()
    own = x.new_empty(b, s // size, d)
    _reduce_scatter(own, parts.view(size * b, s // size, d), group=group)
    return own


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.group = group
        return _gather(x, group)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return _reduce_part(gradients[0].contiguous(), ctx.group), None


class _Scatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.group = group
        return _reduce_part(x.contiguous(), group)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return _gather(gradients[0].contiguous(), ctx.group), None


class MegatronLayer(nn.Module):
    """A rank's part of a layer. `sequence`: what lies between the products is divided too."""

    def __init__(self, dim: int, heads: int, group: dist.ProcessGroup, sequence: bool) -> None:
        super().__init__()
        parts = dist.get_world_size(group)
        self.group, self.head_dim = group, dim // heads
        self.enter = _Gather.apply if sequence else _Copy.apply
        self.leave = _Scatter.apply if sequence else _Reduce.apply
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim // parts)
        self.out = nn.Linear(dim // parts, dim)
        self.up = nn.Linear(dim, 4 * dim // parts)
        self.down = nn.Linear(4 * dim // parts, dim)

    def forward(self, x: Tensor) -> Tensor:
        h = attend(self.qkv(self.enter(self.norm1(x), self.group)), self.head_dim)
        x = x + self.leave(F.linear(h, self.out.weight), self.group) + self.out.bias
        h = F.gelu(self.up(self.enter(self.norm2(x), self.group)))
        return x + self.leave(F.linear(h, self.down.weight), self.group) + self.down.bias


# ---- DTensor ---------------------------------------------------------------------------------


def dtensor_layer(layer: Layer, mesh: DeviceMesh, sequence: bool) -> nn.Module:
    """The plan of torch's own tutorial for a layer."""
    plan: dict[str, Any] = {
        "attention.qkv": ColwiseParallel(),
        "attention.out": RowwiseParallel(),
        "mlp.up": ColwiseParallel(),
        "mlp.down": RowwiseParallel(),
    }
    if sequence:
        plan |= {
            "norm1": SequenceParallel(),
            "attention": _whole_input(),
            "attention.out": RowwiseParallel(output_layouts=Shard(1)),
            "norm2": SequenceParallel(),
            "mlp": _whole_input(),
            "mlp.down": RowwiseParallel(output_layouts=Shard(1)),
        }
    return parallelize_module(layer, mesh, plan)


def _whole_input() -> PrepareModuleInput:
    return PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),))
