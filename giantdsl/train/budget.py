"""How long a run is, in steps, and which samples a step sees."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from giantdsl.errors import SettingsError
from giantdsl.settings.values import TrainSettings


@dataclass(frozen=True, slots=True)
class Budget:
    """`samples` is None where only the number of steps ends the run."""

    steps: int
    batch: int
    samples: int | None

    def indices(self, seen: int) -> range:
        """The global sample indices of the step that comes after `seen` samples."""
        end = seen + self.batch
        return range(seen, end if self.samples is None else min(end, self.samples))

    def is_done(self, step: int, seen: int) -> bool:
        """After `step` steps and `seen` samples, is nothing left to do?"""
        return step >= self.steps if self.samples is None else seen >= self.samples


def make_budget(settings: TrainSettings, num_samples: int | None, tokens_per_sample: int) -> Budget:
    """Steps from `steps`, `tokens` or `epochs`.

    `tokens` rounds up to whole steps; `epochs` ends with the last sample, in a smaller batch
    where the samples are no multiple of it. Raises SettingsError for `epochs` over endless data.
    """
    batch = settings.batch
    if settings.steps is not None:
        return Budget(settings.steps, batch, None)
    if settings.tokens is not None:
        return Budget(ceil(settings.tokens / (batch * tokens_per_sample)), batch, None)
    if settings.epochs is None:
        raise SettingsError(
            "say how long to train: `train.steps`, `train.tokens` or `train.epochs`"
        )
    if num_samples is None:
        raise SettingsError("`train.epochs` needs data with an end; give `train.steps` instead")
    samples = ceil(settings.epochs * num_samples)
    return Budget(ceil(samples / batch), batch, samples)
