"""Everything a run holds while it goes, put together once."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from giantdsl.attrs import Config
from giantdsl.errors import SettingsError
from giantdsl.runtime.device import compute_dtype, master_dtype
from giantdsl.runtime.loader import build_module
from giantdsl.train import data
from giantdsl.train.arguments import optional_count
from giantdsl.train.budget import Budget, make_budget
from giantdsl.train.checkpoint import Checkpoint, module_tensors, restore
from giantdsl.train.compiling import compile_losses
from giantdsl.train.data_protocol import Source
from giantdsl.train.evaluate import evaluated_samples
from giantdsl.train.job import TrainJob
from giantdsl.train.objective import Objective, losses_of
from giantdsl.train.optim import MasterOptimizer, build_optimizer
from giantdsl.train.resume import Say, check_continues, tell_changes
from giantdsl.train.run_dir import RunDir
from giantdsl.train.settings_json import settings_to_json


@dataclass(frozen=True, slots=True)
class Model:
    """The module with its optimizer. `objective` calls it, compiled if the settings say so."""

    module: nn.Module
    optimizer: MasterOptimizer
    objective: Objective

    def tensors(self) -> dict[str, Tensor]:
        """What a checkpoint holds: masters where there are some, else the module's own."""
        return module_tensors(self.module) | self.optimizer.masters

    def restore(self, checkpoint: Checkpoint) -> None:
        """Take over every tensor of a checkpoint, bit for bit.

        Raises SettingsError naming the first tensor that does not fit.
        """
        where = str(checkpoint.path)
        restore(self.tensors(), checkpoint.model_tensors(), f"model of {where}")
        state = self.optimizer.state_tensors()
        restore(state, checkpoint.optimizer_tensors(), f"optimizer state of {where}")
        self.optimizer.publish()


def build_model(job: TrainJob, device: torch.device) -> Model:
    """The fresh model: initial values from the seed, then from `train.init` if there is one."""
    plan, settings = job.plan, job.settings
    precision = settings.precision
    module = build_module(
        plan, device, settings.seed, master_dtype(precision), search_path=job.base_dir
    )
    if settings.init is not None:
        if job.initialize is None:
            raise SettingsError(f"`train.init = {settings.init}` cannot be loaded here")
        with torch.no_grad():
            job.initialize(module)
    optimizer = build_optimizer(
        settings.optimizer, plan, module, precision=precision, freeze=settings.freeze
    )
    module.train()
    run = losses_of(module)
    if settings.compile:
        run = compile_losses(run, device)
    return Model(module, optimizer, Objective(module, plan, device, compute_dtype(precision), run))


@dataclass(frozen=True, slots=True)
class HeldOut:
    """What to evaluate on, how often, and how much of it (None: all)."""

    source: Source
    every: int
    num_batches: int | None


@dataclass(frozen=True, slots=True)
class Data:
    """The sources of a run and its length."""

    source: Source
    held_out: HeldOut | None
    budget: Budget


def build_data(job: TrainJob, run: RunDir) -> Data:
    """Open training and held-out data. Raises SettingsError for what the run cannot use."""
    settings, plan = job.settings, job.plan
    source = job.source or _build_source(job, run, "train")
    if source.num_samples is not None and source.num_samples < 1:
        raise SettingsError("the training data has no whole sample; give it more")
    held_out = None
    if settings.eval is not None:
        eval_source = job.eval_source or _build_source(job, run, "eval")
        num_batches = optional_count(settings.eval, "batches")
        evaluated_samples(eval_source, settings.batch, num_batches)
        held_out = HeldOut(eval_source, interval(settings.eval), num_batches)
    budget = make_budget(settings, source.num_samples, plan.tokens_per_sample)
    return Data(source, held_out, budget)


def interval(every: Config) -> int:
    """The steps of `every(1000, …)`."""
    steps = optional_count(every, "steps")
    if steps is None or steps < 1:
        raise SettingsError(f"`{every}` does not say after how many steps")
    return steps


def _build_source(job: TrainJob, run: RunDir, split: str) -> Source:
    if job.settings.data is None:
        raise SettingsError("there is nothing to train on; set `train.data`, as in `stdlib()`")
    source: Source = data.build_source(
        job.settings, job.plan.inputs, job.base_dir, split=split, cache_dir=run.cache
    )
    return source


def check_resume(checkpoint: Checkpoint, source: Source, job: TrainJob, say: Say) -> None:
    """Tell what changed since the checkpoint.

    Raises SettingsError where seed or data are other than before, unless the checkpoint was named
    by hand.
    """
    now = settings_to_json(job.settings)
    if job.resume == "auto":
        check_continues(checkpoint, source.fingerprint, now, say)
    else:
        tell_changes(checkpoint, now, say)
