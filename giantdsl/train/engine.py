"""What the loop asks of those who compute: one process, or many ranks as one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from giantdsl.plan import Plan
from giantdsl.runtime.rng import sample_noise
from giantdsl.settings.values import TrainSettings
from giantdsl.train.checkpoint import Checkpoint
from giantdsl.train.evaluate import Evaluation, evaluate
from giantdsl.train.objective import split_batch
from giantdsl.train.saving import Snapshot
from giantdsl.train.session import HeldOut, Model
from giantdsl.train.step import StepResult, take_step


class Engine(Protocol):
    """Does the work of a run. Every rank's loop calls the same methods in the same order."""

    @property
    def is_first(self) -> bool:
        """Is this the process that writes files and speaks?"""

    def rows(self, indices: range) -> Sequence[int]:
        """Those of a step's samples whose data this process needs."""

    def step(
        self, step: int, indices: range, batch: Mapping[str, Tensor], learning_rate: float
    ) -> StepResult:
        """One update. `batch` holds the samples that `rows` names; the result is the same everywhere."""

    def evaluate(self, held_out: HeldOut) -> Evaluation | None:
        """Over the whole held-out data; None but on the first process."""

    def restore(self, checkpoint: Checkpoint) -> None:
        """Raises SettingsError naming the first tensor that does not fit."""

    def snapshot(self, *, copy: bool) -> Snapshot | None:
        """What a checkpoint holds; None but on the first process. `copy`: steps may follow at once."""

    def agreed(self, signal: int | None) -> int | None:
        """A signal that any process got."""


@dataclass(frozen=True, slots=True)
class OneProcess:
    """The whole model on one device."""

    model: Model
    plan: Plan
    settings: TrainSettings

    @property
    def is_first(self) -> bool:
        return True

    def rows(self, indices: range) -> Sequence[int]:
        return indices

    def step(
        self, step: int, indices: range, batch: Mapping[str, Tensor], learning_rate: float
    ) -> StepResult:
        return take_step(
            self.model.objective,
            self.model.optimizer,
            split_batch(batch, self.plan.inputs, self.settings.microbatch),
            self._noise(step, indices),
            learning_rate=learning_rate,
            clip=self.settings.clip,
        )

    def _noise(self, step: int, indices: range) -> list[Tensor | None]:
        """The noise of each microbatch; None for a model that draws none."""
        takes = self.model.objective.takes_noise
        return microbatch_noise(takes, self.settings.seed, step, indices, self.settings.microbatch)

    def evaluate(self, held_out: HeldOut) -> Evaluation | None:
        return evaluate(
            self.model.module,
            self.plan,
            held_out.source,
            batch=self.settings.batch,
            microbatch=self.settings.microbatch,
            num_batches=held_out.num_batches,
        )

    def restore(self, checkpoint: Checkpoint) -> None:
        self.model.restore(checkpoint)

    def snapshot(self, *, copy: bool) -> Snapshot | None:
        def taken(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
            return {name: t.detach().to("cpu", copy=copy) for name, t in tensors.items()}

        return Snapshot(taken(self.model.tensors()), taken(self.model.optimizer.state_tensors()))

    def agreed(self, signal: int | None) -> int | None:
        return signal


def microbatch_noise(
    takes_noise: bool, seed: int, step: int, rows: Sequence[int], microbatch: int | None
) -> list[Tensor | None]:
    """Random numbers for dropout, int64 [b], of each microbatch of the samples `rows`."""
    size = microbatch or max(1, len(rows))
    starts = range(0, max(1, len(rows)), size)
    if not takes_noise:
        return [None for _ in starts]
    noise = sample_noise(seed, step, rows)
    return [noise[start : start + size] for start in starts]
