"""One optimizer step over the microbatches of a batch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from giantdsl.runtime.device import wide_dtype
from giantdsl.train.norms import sum_of_squares
from giantdsl.train.objective import Objective, weighted
from giantdsl.train.optim import MasterOptimizer


@dataclass(frozen=True, slots=True)
class StepResult:
    """What a step did. `bad` names the first non-finite tensor: then nothing was updated."""

    loss: float
    losses: dict[str, float]
    grad_norm: float
    bad: str | None


def take_step(
    objective: Objective,
    optimizer: MasterOptimizer,
    parts: Sequence[Mapping[str, Tensor]],
    noise: Sequence[Tensor | None],
    *,
    learning_rate: float,
    clip: float,
) -> StepResult:
    """Gradients of the whole batch's loss, clipped to norm `clip` (0: not at all), and an update.

    `parts` are the microbatches, on the CPU or the device, and `noise` theirs. Waits for the
    device once. Where the loss or a gradient is not finite the weights and moments stay as they are.
    """
    optimizer.zero_grad()
    losses = accumulate_gradients(objective, parts, noise)
    return finish_step(optimizer, losses, learning_rate=learning_rate, clip=clip)


def finish_step(
    optimizer: MasterOptimizer,
    losses: Mapping[str, Tensor],
    *,
    learning_rate: float,
    clip: float,
) -> StepResult:
    """What `take_step` does once the gradients are there; `losses` are the batch's, by name."""
    gradients = optimizer.gradients()
    norm = gradient_norm(list(gradients.values()))
    wide = wide_dtype(norm.device)
    *values, norm_value = torch.stack([*(v.to(wide) for v in losses.values()), norm]).tolist()
    values_by_name = dict(zip(losses, values, strict=True))
    total = sum(values)
    bad = first_non_finite(values_by_name, norm_value, gradients)
    if bad is None:
        if clip > 0 and norm_value > clip:
            torch._foreach_mul_(list(gradients.values()), clip / norm_value)
        optimizer.step(learning_rate)
    return StepResult(total, values_by_name, norm_value, bad)


def accumulate_gradients(
    objective: Objective, parts: Sequence[Mapping[str, Tensor]], noise: Sequence[Tensor | None]
) -> dict[str, Tensor]:
    """Forward and backward of each microbatch; the batch's losses by name, on the device.

    The shares of the microbatches are known before the first backward pass (invariant 1).
    """
    shares = objective.shares(parts)
    sums: dict[str, Tensor] = {}
    for part, part_noise, share in zip(parts, noise, shares, strict=True):
        terms = weighted(objective.losses(part, part_noise), share)
        first, *others = terms.values()
        total = sum(others, start=first)
        if total.requires_grad:
            total.backward()
        for name, term in terms.items():
            value = term.detach()
            sums[name] = sums[name] + value if name in sums else value
    return sums


def gradient_norm(gradients: Sequence[Tensor]) -> Tensor:
    """The 2-norm over all gradients, the sum of squares in float64."""
    if not gradients:
        return torch.zeros((), dtype=torch.float64)
    return torch.stack([sum_of_squares(g) for g in gradients]).sum().sqrt()


def first_non_finite(
    losses: Mapping[str, float], norm: float, gradients: Mapping[str, Tensor]
) -> str | None:
    """The first loss or gradient that has an infinity or a NaN, by name."""
    for name, value in losses.items():
        if not math.isfinite(value):
            return f"loss `{name}`"
    if math.isfinite(norm):
        return None
    for name, gradient in gradients.items():
        if not bool(gradient.isfinite().all()):
            return f"gradient of `{name}`"
    return None
