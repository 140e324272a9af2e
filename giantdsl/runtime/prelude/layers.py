"""Linear layers that torch.nn has no module for."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def fused(x: Tensor, *layers: nn.Linear) -> tuple[Tensor, ...]:
    """Several linear layers of one input as one matrix product."""
    weight = torch.cat([layer.weight for layer in layers])
    bias = None if layers[0].bias is None else torch.cat([layer.bias for layer in layers])
    return F.linear(x, weight, bias).split([layer.out_features for layer in layers], dim=-1)


class ExpertLinear(nn.Module):
    """A linear layer for each expert: x [experts, slot, in] to [experts, slot, out]."""

    def __init__(self, experts: int, out_features: int, in_features: int, bias: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(experts, out_features, in_features))
        self.bias = nn.Parameter(torch.empty(experts, out_features)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        y = x @ self.weight.transpose(1, 2)
        return y if self.bias is None else y + self.bias[:, None]


class ExpertNorm(nn.Module):
    """A norm for each expert: x [experts, slot, d]; `kind` is "layernorm" or "rmsnorm"."""

    def __init__(self, experts: int, size: int, kind: str, eps: float, bias: bool) -> None:
        super().__init__()
        self.size, self.kind, self.eps = size, kind, eps
        self.weight = nn.Parameter(torch.empty(experts, size))
        self.bias = nn.Parameter(torch.empty(experts, size)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        norm = F.layer_norm if self.kind == "layernorm" else F.rms_norm
        y = norm(x, (self.size,), eps=self.eps) * self.weight[:, None]
        return y if self.bias is None else y + self.bias[:, None]
