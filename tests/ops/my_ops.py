"""The Python operation that `models/custom.giant` names; put this folder on PYTHONPATH."""

from __future__ import annotations

import torch
from torch import Tensor


def ema(x: Tensor, decay: float = 0.9) -> Tensor:
    """Exponential moving average along the sequence: y[i] = decay y[i-1] + (1 - decay) x[i].

    Shapes: [.., s, d] -> the same. y[-1] is 0.
    """
    steps = torch.arange(x.shape[-2], device=x.device)
    distance = steps[:, None] - steps[None, :]
    weights = (1 - decay) * decay ** distance.clamp(min=0).to(x.dtype)
    return torch.where(distance >= 0, weights, 0.0) @ x
