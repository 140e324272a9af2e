"""Gradients of weights that are put off: the same as torch's, later, with their hooks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from giantdsl.runtime.weight_gradients import Linear, WeightGradients, defer_to, fused_linear

Layers = Sequence[Linear]
CALLS: dict[str, Callable[[Layers, Tensor], Tensor]] = {
    "layer": lambda layers, x: layers[0](x),
    "product": lambda layers, x: with_bias(layers[0], layers[0].product(x)),
    "fused": lambda layers, x: fused_linear(x, layers),
}


def with_bias(layer: Linear, y: Tensor) -> Tensor:
    return y if layer.bias is None else y + layer.bias


def layers_of(bias: bool) -> list[Linear]:
    torch.manual_seed(3)
    return [Linear(4, size, bias=bias, dtype=torch.float64) for size in (3, 5)]


def gradients(layers: Layers) -> list[Tensor | None]:
    return [parameter.grad for layer in layers for parameter in layer.parameters()]


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("name", CALLS)
def test_the_same_gradients_later(name: str, bias: bool, first: bool) -> None:
    plain, ours, store = layers_of(bias), layers_of(bias), WeightGradients()
    for layer in ours:
        defer_to(layer, store)
    x = torch.randn(2, 6, 4, dtype=torch.float64)
    inputs = [x.clone().requires_grad_(not first) for _ in range(2)]
    wanted, found = CALLS[name](plain, inputs[0]), CALLS[name](ours, inputs[1])
    assert torch.equal(wanted, found)
    slope = torch.randn_like(wanted)
    wanted.backward(slope)
    found.backward(slope)
    if not first:
        torch.testing.assert_close(inputs[0].grad, inputs[1].grad)
    jobs = store.take()
    assert len(jobs) == 1
    assert ours[0].weight.grad is None
    for job in jobs:
        job()
    for expected, made in zip(gradients(plain), gradients(ours), strict=True):
        torch.testing.assert_close(made, expected, rtol=1e-12, atol=1e-12)


def test_hooks_hear_of_a_gradient_that_comes_later() -> None:
    (layer, _), store = layers_of(True), WeightGradients()
    defer_to(layer, store)
    heard: list[bool] = []
    layer.weight.register_post_accumulate_grad_hook(lambda p: heard.append(p.grad is not None))
    layer(torch.randn(6, 4, dtype=torch.float64, requires_grad=True)).sum().backward()
    assert heard == []
    for job in store.take():
        job()
    assert heard == [True]
