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
        return _Deferred.apply(x, self.weight, self.bias, self.store)

    def product(self, x: Tensor) -> Tensor:
        """The same without the bias."""
        if self.store is None or not self.weight.requires_grad:
            return F.linear(x, self.weight)
        return _Deferred.apply(x, self.weight, None, self.store)


def fused_linear(x: Tensor, layers: Sequence[nn.Linear]) -> Tensor:
    """Several linear layers of one input as one product, their results side by side."""
    first = layers[0]
    store = first.store if isinstance(first, Linear) else None
    weights: list[Tensor] = [layer.weight for layer in layers]
    biases: list[Tensor] = [layer.bias for layer in layers]
    if store is None or not all(weight.requires_grad for weight in weights):
        bias = None if biases[0] is None else torch.cat(biases)
        return F.linear(x, torch.cat(weights), bias)
    return _DeferredFused.apply(x, store, len(layers), *weights, *biases)


class _Deferred(torch.autograd.Function):
    """One layer. Its parameters are on `ctx` as they are: FSDP moves what is in them meanwhile."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, store: WeightGradients
    ) -> Tensor:
        ctx.layer = weight, bias, store
        ctx.save_for_backward(x)
        return F.linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        (gradient,) = gradients
        weight, bias, store = ctx.layer
        given = gradient @ weight if ctx.needs_input_grad[0] else None
        if not store.active:
            return (given, *_of_layer(x, gradient, bias is not None), None)

        def later() -> None:
            of_weight, of_bias = _of_layer(x, gradient, bias is not None)
            # A backward pass of its own, so that hooks after accumulation run as always.
            if bias is None:
                torch.autograd.backward(weight, of_weight)
            else:
                torch.autograd.backward((weight, bias), (of_weight, of_bias))

        store.waiting.append(later)
        return given, None, None, None


class _DeferredFused(torch.autograd.Function):
    """x times the joined weights; `parameters` are `count` weights, then as many biases."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, store: WeightGradients, count: int, *parameters: Tensor | None
    ) -> Tensor:
        ctx.store, ctx.parts = store, (parameters[:count], parameters[count:])
        ctx.save_for_backward(x)
        weights, biases = ctx.parts
        return F.linear(x, torch.cat(weights), None if biases[0] is None else torch.cat(biases))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        (gradient,) = gradients
        weights, biases = ctx.parts
        given = gradient @ torch.cat(weights) if ctx.needs_input_grad[0] else None
        if not ctx.store.active:
            found = _of_layers(x, gradient, weights, biases[0] is not None)
            return (given, None, None, *found, *([None] * (2 * len(weights) - len(found))))

        def later() -> None:
            has_bias = biases[0] is not None
            found = _of_layers(x, gradient, weights, has_bias)
            torch.autograd.backward((*weights, *biases) if has_bias else weights, found)

        ctx.store.waiting.append(later)
        return (given, None, None, *([None] * (2 * len(weights))))


def _of_layer(x: Tensor, gradient: Tensor, has_bias: bool) -> tuple[Tensor, Tensor | None]:
    rows = gradient.flatten(0, -2)
    return rows.t() @ x.flatten(0, -2), rows.sum(0) if has_bias else None


def _of_layers(
    x: Tensor, gradient: Tensor, weights: Sequence[Tensor], has_bias: bool
) -> list[Tensor]:
    """The gradients of the weights, then those of the biases."""
    of_weights, of_biases = _of_layer(x, gradient, has_bias)
    sizes = [weight.size(0) for weight in weights]
    found = list(of_weights.split(sizes))
    return found if of_biases is None else [*found, *of_biases.split(sizes)]
