"""What one process computes: the whole batch at once, in float64."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from giantdsl.plan import Plan
from giantdsl.runtime.loader import build_module
from giantdsl.runtime.rng import sample_noise
from giantdsl.settings.values import TrainSettings
from giantdsl.train.objective import Objective
from giantdsl.train.optim import build_optimizer
from giantdsl.train.schedule import learning_rate
from giantdsl.train.step import accumulate_gradients, finish_step

PRECISION = "float64"


@dataclass(frozen=True, slots=True)
class Reference:
    """Everything that is compared, by name, whole. `blocks` are the results of every block."""

    losses: dict[str, float]
    norm: float
    blocks: dict[str, tuple[Tensor, ...]]
    gradients: dict[str, Tensor]
    updated: dict[str, Tensor]

    def save(self, path: Path) -> None:
        torch.save({key: getattr(self, key) for key in self.__slots__}, path)

    @classmethod
    def load(cls, path: Path) -> Reference:
        return cls(**torch.load(path, weights_only=True))


def make_reference(
    plan: Plan,
    settings: TrainSettings,
    batch: Mapping[str, Tensor],
    blocks: Mapping[str, int],
    *,
    seed: int,
    search_path: Path | None = None,
) -> Reference:
    """One step of the plain module. `blocks` are names of layers with how many results they have."""
    rows = next(iter(batch.values())).size(0)
    module = build_module(plan, seed=seed, dtype=torch.float64, search_path=search_path)
    optimizer = build_optimizer(
        settings.optimizer, plan, module, precision=PRECISION, freeze=settings.freeze
    )
    module.train()
    objective = Objective(module, plan, torch.device("cpu"), torch.float64)
    noise = step_noise(objective.takes_noise, seed, rows)
    optimizer.zero_grad()
    with recorded(module, blocks) as seen:
        losses = accumulate_gradients(objective, [batch], [noise])
    gradients = {name: g.clone() for name, g in optimizer.gradients().items()}
    rate = learning_rate(settings.lr, 1, settings.steps or 1)
    step = finish_step(optimizer, losses, learning_rate=rate, clip=settings.clip)
    results = {name: calls[0] for name, calls in seen.items()}
    updated = {name: p.detach().clone() for name, p in module.named_parameters()}
    return Reference(step.losses, step.grad_norm, results, gradients, updated)


def step_noise(takes_noise: bool, seed: int, rows: int) -> Tensor | None:
    """The noise of the samples 0..rows of step 1, int64 [rows]."""
    return sample_noise(seed, 1, range(rows)) if takes_noise else None


@contextmanager
def recorded(
    module: nn.Module, blocks: Mapping[str, int]
) -> Iterator[dict[str, list[tuple[Tensor, ...]]]]:
    """By layer, what each call of it returned (its first results, without losses).

    A call that only makes activations again for the backward pass is none.
    """
    seen: dict[str, list[tuple[Tensor, ...]]] = {}
    handles = [
        module.get_submodule(name).register_forward_hook(_keeper(seen, name, count))
        for name, count in blocks.items()
    ]
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()


def _keeper(seen: dict[str, list[tuple[Tensor, ...]]], name: str, count: int) -> Any:
    def keep(module: nn.Module, args: Sequence[Any], output: Any) -> None:
        if torch._C._current_graph_task_id() != -1:
            return
        results = output if isinstance(output, tuple) else (output,)
        seen.setdefault(name, []).append(tuple(r.detach().clone() for r in results[:count]))

    return keep
