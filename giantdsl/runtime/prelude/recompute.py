"""Activations that are made again in the backward pass instead of kept."""

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


def recomputed(layer: nn.Module, *args: Tensor | None, **named: Tensor | None) -> Tensor:
    """Call a layer; in training keep only what goes in (Chen 2016)."""
    if layer.training and torch.is_grad_enabled():
        return checkpoint(layer, *args, use_reentrant=False, preserve_rng_state=False, **named)
    return layer(*args, **named)
