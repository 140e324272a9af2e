"""Losses: each a mean over what it counts."""

import torch
import torch.nn.functional as F
from torch import Tensor


def cross_entropy(
    logits: Tensor,
    labels: Tensor,
    *,
    ignore: int,
    smooth: float = 0.0,
    weight: Tensor | None = None,
) -> Tensor:
    """Mean loss of the labels [..] that are not `ignore`, 0 if there are none.

    logits [.., classes]. With `weight` [..], the weighted sum over the sum of weights.
    """
    logits, labels = logits.flatten(0, -2), labels.flatten()
    if logits.dtype in (torch.float16, torch.bfloat16):
        logits = logits.float()
    reduction = "sum" if weight is None else "none"
    loss = F.cross_entropy(
        logits, labels, ignore_index=ignore, label_smoothing=smooth, reduction=reduction
    )
    valid = labels != ignore
    if weight is None:
        return loss / valid.sum().clamp(min=1)
    weight = weight.flatten() * valid
    total = weight.sum()
    return (loss * weight).sum() / torch.where(total == 0, 1.0, total)


def z_loss(logits: Tensor) -> Tensor:
    """Mean over all positions of the squared logsumexp over the last axis (Chowdhery 2022)."""
    if logits.dtype in (torch.float16, torch.bfloat16):
        logits = logits.float()
    return logits.logsumexp(-1).square().mean()
