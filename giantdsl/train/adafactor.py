"""Adafactor (Shazeer & Stern 2018, "Adaptive learning rates with sublinear memory cost").

torch's own caps the rate at 1/sqrt(step); here the rate is what the schedule says, so that the
log tells the truth.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

# The paper's epsilon 1: what keeps the mean square away from 0.
_TINY = 1e-30


class Means:
    """Means over a parameter, of tensors shaped like it; here the tensors are whole.

    Where this rank holds a part only, a subclass takes the other parts into account.
    """

    def over_last(self, x: Tensor) -> Tensor:
        """[..., m, n] -> [..., m]"""
        return x.mean(dim=-1)

    def over_rows(self, x: Tensor) -> Tensor:
        """[..., m, n] -> [..., n]"""
        return x.mean(dim=-2)

    def of_row(self, row: Tensor) -> Tensor:
        """[..., m], what `over_last` gave -> [..., 1]"""
        return row.mean(dim=-1, keepdim=True)

    def over_all(self, x: Tensor) -> Tensor:
        """A scalar."""
        return x.mean()


_WHOLE = Means()


class Adafactor(Optimizer):
    """Second moments of matrices kept as a row and a column of means.

    One step of a parameter x with gradient g: u = g / sqrt(v), u /= max(1, rms(u) / threshold),
    x -= rate * u with rate = lr * max(eps, rms(x)) if `scale_by_parameter`, else lr. The decay of
    v at its step t is 1 - t ** power. With `beta1` > 0 u is averaged too. Weight decay is
    decoupled: x -= lr * weight_decay * x. Parameters of three and more dimensions are stacks of
    matrices, each with its own row and column.
    """

    def __init__(
        self,
        params: Iterable[dict[str, Any]],
        *,
        lr: float,
        power: float = -0.8,
        threshold: float = 1.0,
        eps: float = 1e-3,
        beta1: float = 0.0,
        weight_decay: float = 0.0,
        scale_by_parameter: bool = True,
        means: Mapping[Tensor, Means] | None = None,
    ) -> None:
        defaults = {
            "lr": lr,
            "power": power,
            "threshold": threshold,
            "eps": eps,
            "beta1": beta1,
            "weight_decay": weight_decay,
            "scale_by_parameter": scale_by_parameter,
        }
        super().__init__(params, defaults)
        self._means = means or {}

    def init_state(self, parameter: Tensor, group: dict[str, Any]) -> dict[str, Tensor]:
        """The state before the first step, all zeros."""
        state = {"step": torch.zeros((), dtype=torch.float32)}
        if parameter.dim() >= 2:
            state["row"] = parameter.new_zeros(parameter.shape[:-1])
            state["column"] = parameter.new_zeros(parameter.shape[:-2] + parameter.shape[-1:])
        else:
            state["square"] = torch.zeros_like(parameter)
        if group["beta1"] > 0:
            state["average"] = torch.zeros_like(parameter)
        return state

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if not state:
                    state.update(self.init_state(parameter, group))
                means = self._means.get(parameter, _WHOLE)
                _update(parameter, parameter.grad, state, group, means)


def _update(
    x: Tensor, gradient: Tensor, state: dict[str, Tensor], group: dict[str, Any], means: Means
) -> None:
    state["step"] += 1
    decay = 1.0 - state["step"].item() ** group["power"]
    update = gradient * _inverse_root(gradient, state, decay, means)
    update.div_((_rms(update, means) / group["threshold"]).clamp_(min=1.0))
    if group["scale_by_parameter"]:
        update.mul_(_rms(x, means).clamp_(min=group["eps"]))
    update.mul_(group["lr"])
    if group["beta1"] > 0:
        update = state["average"].lerp_(update, 1.0 - group["beta1"])
    if group["weight_decay"] > 0:
        x.mul_(1.0 - group["lr"] * group["weight_decay"])
    x.sub_(update)


def _inverse_root(gradient: Tensor, state: dict[str, Tensor], decay: float, means: Means) -> Tensor:
    """1 / sqrt of the running mean square, from its row and column where it has them."""
    square = gradient.square().add_(_TINY)
    if "square" in state:
        return state["square"].lerp_(square, 1.0 - decay).rsqrt()
    row = state["row"].lerp_(means.over_last(square), 1.0 - decay)
    column = state["column"].lerp_(means.over_rows(square), 1.0 - decay)
    scaled_row = (row / means.of_row(row)).rsqrt_()
    return scaled_row.unsqueeze(-1) * column.rsqrt().unsqueeze(-2)


def _rms(tensor: Tensor, means: Means) -> Tensor:
    return means.over_all(tensor.square()).sqrt()
