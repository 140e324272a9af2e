"""Optimizers over master weights.

Weights between steps, moments and accumulated gradients are float32 (float64 under that
precision) whatever the module computes in (invariant 22). Where the module computes in the
masters' type, its parameters are the masters and nothing is copied.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer

from giantdsl.attrs import Config
from giantdsl.errors import SettingsError
from giantdsl.plan import ParameterInfo, Plan
from giantdsl.runtime.device import compute_dtype
from giantdsl.runtime.loader import lower_module
from giantdsl.train.adafactor import Adafactor, Means
from giantdsl.train.arguments import flag, number, pair


@dataclass(slots=True)
class _Pair:
    """A trained parameter of the module and its master: the same tensor where types agree."""

    name: str
    live: nn.Parameter
    master: nn.Parameter


class MasterOptimizer:
    """An optimizer, the masters it updates and their gradients, all by logical name.

    Between `zero_grad` and `step` any number of backward passes may run; their gradients add up
    in the masters' type.
    """

    def __init__(self, kind: Config, infos: Sequence[ParameterInfo], pairs: list[_Pair]) -> None:
        self._pairs = pairs
        self._lowered = [p for p in pairs if p.live is not p.master]
        for pair_ in self._lowered:
            pair_.live.register_post_accumulate_grad_hook(_move_gradient_to(pair_.master))
        self._inner = make_inner(kind, infos, [p.master for p in pairs])

    @property
    def masters(self) -> dict[str, Tensor]:
        """The trained weights, in the masters' type."""
        return {p.name: p.master.detach() for p in self._pairs}

    def zero_grad(self) -> None:
        for pair_ in self._pairs:
            pair_.master.grad = None
            pair_.live.grad = None

    def gradients(self) -> dict[str, Tensor]:
        """What the backward passes since `zero_grad` added up; absent where none reached."""
        return {p.name: p.master.grad for p in self._pairs if p.master.grad is not None}

    def step(self, learning_rate: float) -> None:
        """One update. The rate of a parameter is `learning_rate` times its multiplier."""
        update(self._inner, learning_rate)
        self.publish()

    @torch.no_grad()
    def publish(self) -> None:
        """Copy the masters to the module."""
        if self._lowered:
            torch._foreach_copy_([p.live for p in self._lowered], [p.master for p in self._lowered])

    def state_tensors(self) -> dict[str, Tensor]:
        """The optimizer's state, `<slot>/<parameter>`: the tensors themselves, not copies."""
        return {
            f"{slot}/{p.name}": value
            for p in self._pairs
            for slot, value in self._inner.state[p.master].items()
        }


def build_optimizer(
    kind: Config, plan: Plan, module: nn.Module, *, precision: str, freeze: Sequence[str] = ()
) -> MasterOptimizer:
    """Make masters of the module's values, then turn the module into its computing type.

    The module comes in the masters' type, so that no bit of the initial values is lost.
    Raises SettingsError for an optimizer that does not exist and a `freeze` that fits nothing.
    """
    frozen = frozen_names([p.name for p in plan.parameters], freeze)
    parameters = dict(module.named_parameters())
    for name in frozen:
        parameters[name].requires_grad_(False)
    trained = [info for info in plan.parameters if info.name not in frozen]
    before = {info.name: parameters[info.name].detach() for info in trained}
    if all(p.dtype == compute_dtype(precision) for p in parameters.values()):
        pairs = [_Pair(i.name, parameters[i.name], parameters[i.name]) for i in trained]
        return MasterOptimizer(kind, trained, pairs)
    lower_module(module, plan, compute_dtype(precision))
    pairs = []
    for info in trained:
        live, values = parameters[info.name], before[info.name]
        same = live.dtype == values.dtype
        pairs.append(_Pair(info.name, live, live if same else nn.Parameter(values)))
    return MasterOptimizer(kind, trained, pairs)


def frozen_names(names: Sequence[str], freeze: Sequence[str]) -> frozenset[str]:
    """The parameters that do not train: those a pattern fits, or whose path begins with it.

    `*` stands for any characters, dots included. Raises SettingsError where a pattern fits no
    parameter, or all together leave none to train.
    """
    frozen: set[str] = set()
    for pattern in freeze:
        hits = [n for n in names if fnmatchcase(n, pattern) or fnmatchcase(n, f"{pattern}.*")]
        if not hits:
            example = f"; names look like `{names[0]}`" if names else ""
            raise SettingsError(f"`train.freeze` has `{pattern}`, which fits no parameter{example}")
        frozen.update(hits)
    if names and len(frozen) == len(set(names)):
        raise SettingsError("`train.freeze` leaves no parameter to train")
    return frozenset(frozen)


def _move_gradient_to(master: nn.Parameter) -> Callable[[Tensor], None]:
    def move(live: Tensor) -> None:
        assert live.grad is not None, "a hook after accumulation has a gradient"
        if master.grad is None:
            master.grad = live.grad.to(master.dtype)
        else:
            master.grad.add_(live.grad)
        live.grad = None

    return move


def make_inner(
    kind: Config,
    infos: Sequence[ParameterInfo],
    masters: Sequence[nn.Parameter],
    means: Mapping[Tensor, Means] | None = None,
) -> Optimizer:
    """torch's optimizer over masters, `infos` theirs, with its state before the first step.

    A master may be a part of its parameter: `info` is of the whole. `means` are for Adafactor:
    the parameters of which another rank holds the rest. Raises SettingsError.
    """
    inner = _make_optimizer(kind, _groups(infos, masters), means or {})
    for group in inner.param_groups:
        for master in group["params"]:
            inner.state[master] = _initial_state(inner, master, group)
    return inner


def update(inner: Optimizer, learning_rate: float) -> None:
    """One step. The rate of a parameter is `learning_rate` times its multiplier."""
    for group in inner.param_groups:
        group["lr"] = learning_rate * group["multiplier"]
    inner.step()


def _groups(
    infos: Sequence[ParameterInfo], masters: Sequence[nn.Parameter]
) -> list[dict[str, Any]]:
    groups: dict[tuple[float, bool, torch.dtype], dict[str, Any]] = {}
    for info, master in zip(infos, masters, strict=True):
        key = (info.lr, info.decay, master.dtype)
        group = groups.setdefault(key, {"params": [], "multiplier": info.lr, "decays": info.decay})
        group["params"].append(master)
    return list(groups.values())


def _make_optimizer(
    kind: Config, groups: list[dict[str, Any]], means: Mapping[Tensor, Means]
) -> Optimizer:
    decay = number(kind, "decay", 0.0)
    for group in groups:
        group["weight_decay"] = decay if group["decays"] else 0.0
    if kind.name == "adamw":
        betas, eps = pair(kind, "betas", (0.9, 0.999)), number(kind, "eps", 1e-8)
        return AdamW(groups, lr=0.0, betas=betas, eps=eps, fused=_can_fuse(groups))
    if kind.name == "sgd":
        momentum = number(kind, "momentum", 0.0)
        nesterov = flag(kind, "nesterov", False)
        if nesterov and momentum <= 0:
            raise SettingsError("`sgd(nesterov=true)` needs a `momentum` above 0")
        return SGD(groups, lr=0.0, momentum=momentum, nesterov=nesterov, fused=_can_fuse(groups))
    if kind.name == "adafactor":
        return Adafactor(groups, lr=0.0, means=means, **_adafactor_options(kind))
    raise SettingsError(
        f"`train.optimizer` is `{kind.name}`, which is not one of `adamw`, `adafactor`, `sgd`"
    )


def _adafactor_options(kind: Config) -> dict[str, Any]:
    return {
        "power": number(kind, "power", -0.8),
        "threshold": number(kind, "threshold", 1.0),
        "eps": number(kind, "eps", 1e-3),
        "beta1": number(kind, "beta1", 0.0),
        "scale_by_parameter": flag(kind, "scale", True),
    }


def _can_fuse(groups: Sequence[Mapping[str, Any]]) -> bool:
    types = {p.device.type for group in groups for p in group["params"]}
    return types <= {"cpu", "cuda", "xpu", "mps"}


def _initial_state(inner: Optimizer, master: Tensor, group: dict[str, Any]) -> dict[str, Tensor]:
    """Zeros, there before the first step: a checkpoint then always holds every slot."""
    if isinstance(inner, Adafactor):
        return inner.init_state(master, group)
    if isinstance(inner, AdamW):
        device = master.device if group["fused"] else torch.device("cpu")
        return {
            "step": torch.zeros((), dtype=torch.float32, device=device),
            "exp_avg": torch.zeros_like(master),
            "exp_avg_sq": torch.zeros_like(master),
        }
    return {"momentum_buffer": torch.zeros_like(master)} if group["momentum"] > 0 else {}
