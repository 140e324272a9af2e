"""A run directory as a module that computes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from giantdsl.plan import Plan
from giantdsl.runtime.device import compute_dtype, master_dtype, pick_device
from giantdsl.runtime.loader import build_module, lower_module
from giantdsl.settings.values import TrainSettings
from giantdsl.train import data
from giantdsl.train.checkpoint import Checkpoint, module_tensors, restore
from giantdsl.train.data_protocol import Source
from giantdsl.train.resume import find_checkpoint
from giantdsl.train.run_dir import RunDir, read_run_files


@dataclass(frozen=True, slots=True)
class LoadedRun:
    """A trained module, in eval mode, and what it was made from."""

    module: nn.Module
    plan: Plan
    settings: TrainSettings
    checkpoint: Checkpoint
    base_dir: Path
    run: RunDir

    def source(self, split: str) -> Source:
        """The run's data again: `train` or `eval`. Its tokenizer is `source(…).tokenizer`."""
        source: Source = data.build_source(
            self.settings,
            self.plan.inputs,
            self.base_dir,
            split=split,
            cache_dir=self.run.cache,
        )
        return source


def load_run(
    directory: Path, *, device: str | None = None, say: Callable[[str], None] | None = None
) -> LoadedRun:
    """Load a run's newest complete checkpoint, or the one that `directory` is itself.

    The module computes in the run's precision, from the weights that training went on with.
    `say` hears of checkpoints that were passed over. Raises SettingsError where there is no run,
    no complete checkpoint, or a tensor that does not fit the module.
    """
    checkpoint = find_checkpoint(directory, say or _nobody)
    stored = read_run_files(checkpoint.path.parent.parent)
    precision = stored.settings.precision
    module = build_module(
        stored.plan,
        pick_device(device),
        stored.settings.seed,
        master_dtype(precision),
        search_path=stored.base_dir,
    )
    restore(module_tensors(module), checkpoint.model_tensors(), f"model of {checkpoint.path}")
    lower_module(module, stored.plan, compute_dtype(precision))
    return LoadedRun(
        module.eval(), stored.plan, stored.settings, checkpoint, stored.base_dir, stored.run
    )


def _nobody(message: str) -> None:
    """Where no one listens."""
