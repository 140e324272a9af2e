"""Loss on held-out data, by the same definition as in training (invariant 1)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from giantdsl.errors import SettingsError
from giantdsl.plan import Plan
from giantdsl.train.batches import select_inputs
from giantdsl.train.data_protocol import Source
from giantdsl.train.objective import Objective, batch_rows, split_batch


@dataclass(frozen=True, slots=True)
class Evaluation:
    """`loss` sums all losses. The rest is of the first loss that counts labels, if there is one:

    `nats_per_token` is that loss, `perplexity` its exponential; `nats_per_byte` is None where the
    data does not know the bytes behind its tokens.
    """

    loss: float
    losses: dict[str, float]
    num_samples: int
    num_tokens: int
    nats_per_token: float | None
    perplexity: float | None
    nats_per_byte: float | None

    def as_metrics(self) -> dict[str, float]:
        values: dict[str, float | None] = {
            "loss": self.loss,
            **{f"loss/{name}": value for name, value in self.losses.items()},
            "perplexity": self.perplexity,
            "nats_per_byte": self.nats_per_byte,
        }
        return {name: value for name, value in values.items() if value is not None}

    def __str__(self) -> str:
        parts = [f"held-out loss {self.loss:.4f}"]
        if self.nats_per_token is not None:
            parts.append(f"{self.nats_per_token:.4f} nats a token")
        if self.nats_per_byte is not None:
            parts.append(f"{self.nats_per_byte:.4f} nats a byte")
        if self.perplexity is not None:
            parts.append(f"perplexity {self.perplexity:.2f}")
        return ", ".join(parts)


def evaluate(
    module: nn.Module,
    plan: Plan,
    source: Source,
    *,
    batch: int,
    microbatch: int | None = None,
    num_batches: int | None = None,
) -> Evaluation:
    """Mean losses over the first `num_batches` batches of `source` (None: one epoch).

    The means are over everything at once, however it is split. Raises SettingsError for endless
    data without `num_batches`, and for data without a sample.
    """
    num_samples = evaluated_samples(source, batch, num_batches)
    parameter = next(module.parameters())
    objective = Objective(module, plan, parameter.device, parameter.dtype)
    total = Total(plan)
    with evaluating(module), torch.no_grad():
        for start in range(0, num_samples, batch):
            indices = range(start, min(start + batch, num_samples))
            samples = select_inputs(source.batch(indices), plan.inputs)
            total.add_bytes(source.bytes_of(samples))
            for part in split_batch(samples, plan.inputs, microbatch):
                rows = batch_rows(part, plan.inputs)
                total.add(objective.losses(part), objective.counts(part), rows)
    return total.result(num_samples, source.tokens_per_byte)


def evaluated_samples(source: Source, batch: int, num_batches: int | None) -> int:
    """How many samples an evaluation sees. Raises as `evaluate` does."""
    wanted = None if num_batches is None else num_batches * batch
    there = source.num_samples
    if wanted is None and there is None:
        raise SettingsError(
            "evaluation over endless data needs `batches`, as in `every(100, batches=20)`"
        )
    if there is not None and there < 1:
        raise SettingsError("the held-out data has no whole sample; give it more")
    return min(n for n in (wanted, there) if n is not None)


class Total:
    """Sums of losses times what their means divide by, in float64 on the host."""

    def __init__(self, plan: Plan) -> None:
        self._main = plan.counted[0] if plan.counted else None
        self.sums: dict[str, float] = {}
        self.counts: dict[str, float] = {}
        self.num_bytes: int | None = 0

    def add_bytes(self, num_bytes: int | None) -> None:
        known = num_bytes is not None and self.num_bytes is not None
        self.num_bytes = (self.num_bytes or 0) + (num_bytes or 0) if known else None

    def add(self, losses: dict[str, Tensor], counts: dict[str, float], rows: int) -> None:
        for name, loss in losses.items():
            count = counts.get(name, float(rows))
            self.sums[name] = self.sums.get(name, 0.0) + float(loss) * count
            self.counts[name] = self.counts.get(name, 0.0) + count

    def add_sums(self, sums: Mapping[str, Tensor], weights: Sequence[Mapping[str, float]]) -> None:
        """Losses that were weighted already; what has no count of its own goes by rows, ""."""
        for name, value in sums.items():
            self.sums[name] = self.sums.get(name, 0.0) + float(value)
        for weight in weights:
            for name, count in weight.items():
                self.counts[name] = self.counts.get(name, 0.0) + count

    def replace(
        self, sums: dict[str, float], counts: dict[str, float], num_bytes: int | None
    ) -> None:
        """What all ranks together have seen."""
        self.sums, self.counts, self.num_bytes = sums, counts, num_bytes

    def result(self, num_samples: int, tokens_per_byte: float | None) -> Evaluation:
        means = {n: s / self.counts[n] if self.counts[n] else 0.0 for n, s in self.sums.items()}
        main = means.get(self._main) if self._main is not None else None
        tokens = int(self.counts.get(self._main or "", 0))
        per_byte = None
        if main is not None:
            if self.num_bytes:
                per_byte = main * tokens / self.num_bytes
            elif tokens_per_byte is not None:
                per_byte = main * tokens_per_byte
        perplexity = None if main is None else math.exp(min(main, 700.0))
        return Evaluation(
            sum(means.values()), means, num_samples, tokens, main, perplexity, per_byte
        )


@contextmanager
def evaluating(*modules: nn.Module) -> Iterator[None]:
    """The modules as they compute in evaluation; afterwards as they were."""
    before = [module.training for module in modules]
    for module in modules:
        module.eval()
    try:
        yield
    finally:
        for module, was_training in zip(modules, before, strict=True):
            module.train(was_training)
