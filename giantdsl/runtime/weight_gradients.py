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
    """What a stage still has to do for its weights, oldest first."""

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
        return _deferred(x, self.weight, self.bias, self.store)

    def product(self, x: Tensor) -> Tensor:
        """The same without the bias."""
        if self.store is None or not self.weight.requires_grad:
            return F.linear(x, self.weight)
        return _deferred(x, self.weight, None, self.store)


def fused_linear(x: Tensor, layers: Sequence[nn.Linear]) -> Tensor:
    """Several linear layers of one input as one product, their results side by side."""
    first = layers[0]
    store = first.store if isinstance(first, Linear) else None
    weights: list[Tensor] = [layer.weight for layer in layers]
    biases: list[Tensor] = [layer.bias for layer in layers]
    if store is None or not all(weight.requires_grad for weight in weights):
        bias = None if biases[0] is None else torch.cat(biases)
        return F.linear(x, torch.cat(weights), bias)
    return _DeferredFused.apply(x, _anchor(x, weights[0]), store, weights, biases)


def _anchor(x: Tensor, weight: Tensor) -> Tensor | None:
    """What connects a layer to the graph where its input does not.

    Else the engine sees no parameter: it would call hooks of those that get nothing yet.
    """
    return None if x.requires_grad else weight


def _deferred(x: Tensor, weight: Tensor, bias: Tensor | None, store: WeightGradients) -> Tensor:
    return _Deferred.apply(x, _anchor(x, weight), store, (weight, bias))


class _Deferred(torch.autograd.Function):
    """One layer. Its parameters are on `ctx` as they are: FSDP moves what is in them meanwhile."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        anchor: Tensor | None,
        store: WeightGradients,
        layer: tuple[Tensor, Tensor | None],
    ) -> Tensor:
        ctx.store, ctx.layer = store, layer
        ctx.save_for_backward(x)
        return F.linear(x, *layer)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        (gradient,) = gradients
        weight, bias = ctx.layer
        given = gradient @ weight if ctx.needs_input_grad[0] else None

        def later() -> None:
            of_weight, of_bias = _of_layer(x, gradient, bias is not None)
            # A backward pass of its own, so that hooks after accumulation run as always.
            if bias is None:
                torch.autograd.backward(weight, of_weight)
            else:
                torch.autograd.backward((weight, bias), (of_weight, of_bias))

        ctx.store.waiting.append(later)
        return given, None, None, None


class _DeferredFused(torch.autograd.Function):
    """x times the joined weights."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        anchor: Tensor | None,
        store: WeightGradients,
        weights: list[Tensor],
        biases: list[Tensor],
    ) -> Tensor:
        ctx.store, ctx.layers = store, (weights, biases)
        ctx.save_for_backward(x)
        return F.linear(x, torch.cat(weights), None if biases[0] is None else torch.cat(biases))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        (gradient,) = gradients
        weights, biases = ctx.layers
        given = gradient @ torch.cat(weights) if ctx.needs_input_grad[0] else None

        def later() -> None:
            has_bias = biases[0] is not None
            found = _of_layers(x, gradient, weights, has_bias)
            torch.autograd.backward([*weights, *biases] if has_bias else weights, found)

        ctx.store.waiting.append(later)
        return given, None, None, None, None


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
