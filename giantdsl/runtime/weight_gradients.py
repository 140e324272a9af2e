"""Weight gradients that are computed later than the gradients of activations.

Zero-bubble schedules (Qi et al. 2023) fill the pipeline's bubbles with them: a `Linear` that has
a `WeightGradients` gives its input's gradient at once and leaves its own to `run`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(slots=True)
class WeightGradients:
    """What a stage still has to do for its weights, oldest first.

    Only while `active` is anything put off.
    """

    active: bool = False
    waiting: list[Callable[[], None]] = field(default_factory=list)

    def take(self) -> list[Callable[[], None]]:
        """What waits now: the caller runs it."""
        waiting, self.waiting = self.waiting, []
        return waiting


def defer_to(module: nn.Module, store: WeightGradients | None) -> None:
    """All `Linear` layers of a module leave their weight gradients to `store`; None: to nobody."""
    for layer in module.modules():
        if isinstance(layer, Linear):
            layer.store = store


class Linear(nn.Linear):
    """torch's Linear; its weight gradient can be put off."""

    store: WeightGradients | None = None

    def forward(self, x: Tensor) -> Tensor:
        if self.store is None or not self.weight.requires_grad:
            return F.linear(x, self.weight, self.bias)
        return _Deferred.apply(x, self.store, 1, self.weight, self.bias)

    def product(self, x: Tensor) -> Tensor:
        """The same without the bias."""
        if self.store is None or not self.weight.requires_grad:
            return F.linear(x, self.weight)
        return _Deferred.apply(x, self.store, 1, self.weight, None)


def fused_linear(x: Tensor, layers: Sequence[nn.Linear]) -> Tensor:
    """Several linear layers of one input as one product, their results side by side."""
    first = layers[0]
    store = first.store if isinstance(first, Linear) else None
    weights = [layer.weight for layer in layers]
    biases = [layer.bias for layer in layers]
    if store is None or not all(weight.requires_grad for weight in weights):
        bias = None if biases[0] is None else torch.cat(biases)
        return F.linear(x, torch.cat(weights), bias)
    return _Deferred.apply(x, store, len(layers), *weights, *biases)


class _Deferred(torch.autograd.Function):
    """x times the joined weights; `parameters` are `count` weights, then as many biases."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, store: WeightGradients, count: int, *parameters: Tensor | None
    ) -> Tensor:
        weights = [p for p in parameters[:count] if p is not None]
        biases = [p for p in parameters[count:] if p is not None]
        weight = weights[0] if count == 1 else torch.cat(weights)
        bias = None if not biases else biases[0] if count == 1 else torch.cat(biases)
        ctx.store, ctx.count, ctx.parameters = store, count, parameters
        ctx.save_for_backward(x)
        return F.linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        (gradient,) = gradients
        weights = list(ctx.parameters[: ctx.count])
        weight = weights[0] if ctx.count == 1 else torch.cat(weights)
        given = gradient @ weight if ctx.needs_input_grad[0] else None
        none = [None] * len(ctx.parameters)
        if not ctx.store.active:
            return (given, None, None, *_of_weights(x, gradient, ctx.parameters, ctx.count))
        parameters, count = ctx.parameters, ctx.count

        def later() -> None:
            found = _of_weights(x, gradient, parameters, count)
            pairs = [(p, g) for p, g in zip(parameters, found, strict=True) if p is not None]
            # A backward pass of its own, so that hooks after accumulation run as always.
            torch.autograd.backward([p for p, _ in pairs], [g for _, g in pairs])

        ctx.store.waiting.append(later)
        return (given, None, None, *none)


def _of_weights(
    x: Tensor, gradient: Tensor, parameters: Sequence[Tensor | None], count: int
) -> list[Tensor | None]:
    """The gradients of the weights, then of the biases, each where there is one."""
    rows = gradient.flatten(0, -2)
    whole = rows.t() @ x.flatten(0, -2)
    sizes = [p.size(0) for p in parameters[:count] if p is not None]
    found: list[Tensor | None] = list(whole.split(sizes))
    for bias, part in zip(parameters[count:], rows.split(sizes, dim=-1), strict=True):
        found.append(None if bias is None else part.sum(0))
    return found
