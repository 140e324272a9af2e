"""The training loop, on one process or as one of many ranks."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import torch

from giantdsl.attrs import Config
from giantdsl.errors import RuntimeFault
from giantdsl.runtime.device import deterministic, peak_memory_bytes, pick_device
from giantdsl.train.arguments import flag, optional_count
from giantdsl.train.batches import Batches, batches_ahead
from giantdsl.train.checkpoint import (
    Checkpoint,
    TrainState,
    checkpoint_name,
    remove_leftovers,
)
from giantdsl.train.console import RunConsole
from giantdsl.train.engine import Engine, OneProcess
from giantdsl.train.files import writing
from giantdsl.train.job import RunResult, TrainJob
from giantdsl.train.launch.failure import Progress
from giantdsl.train.lock import locked
from giantdsl.train.many_ranks import build_many_ranks
from giantdsl.train.metrics import MetricsFile, StepRecord
from giantdsl.train.ranks import Ranks
from giantdsl.train.resume import choose_checkpoint
from giantdsl.train.run_dir import RunDir, write_run_files, write_stages
from giantdsl.train.saving import CheckpointWriter
from giantdsl.train.schedule import learning_rate
from giantdsl.train.session import Data, build_data, build_model, check_resume, interval
from giantdsl.train.settings_json import settings_to_json
from giantdsl.train.signals import StopRequest, stop_on_signals
from giantdsl.train.tensorboard import TensorBoard, require_tensorboard

_MAX_SKIPPED = 20
"""Steps in a row that may come to nothing before the run ends."""


def run(job: TrainJob, ranks: Ranks | None = None) -> RunResult:
    """Train until the budget is spent or a signal comes, and leave a checkpoint then.

    `ranks`: this process is one of many; every one of them calls this. Raises SettingsError for
    what the user has to mend and RuntimeFault where the run broke.
    """
    device = pick_device(job.device if ranks is None else ranks.device(job.device))
    directory = RunDir(job.run_dir)
    if "tensorboard" in job.settings.log:
        require_tensorboard()
    is_first = ranks is None or ranks.is_first
    quiet = job.quiet or "console" not in job.settings.log or not is_first
    with ExitStack() as stack:
        if is_first:
            stack.enter_context(locked(directory.path))
        stack.enter_context(deterministic(device))
        console = RunConsole(
            job.console, memory_bytes=lambda: peak_memory_bytes(device), quiet=quiet
        )
        stack.callback(console.close)
        loop = _prepare(job, directory, device, console, ranks)
        stack.callback(loop.close)
        inputs, data = job.plan.inputs, loop.data
        batches = stack.enter_context(
            batches_ahead(
                data.source, inputs, data.budget, loop.state.samples, device, loop.engine.rows
            )
        )
        request = stack.enter_context(stop_on_signals(console.say))
        return loop.run(batches, request)


def _prepare(
    job: TrainJob,
    directory: RunDir,
    device: torch.device,
    console: RunConsole,
    ranks: Ranks | None,
) -> _Loop:
    """Everything up to the first step: data, model, the checkpoint to go on from, run files."""

    def choose() -> Checkpoint | None:
        with writing("run directory", directory.path):
            remove_leftovers(directory.checkpoints)
        return choose_checkpoint(directory, job.resume, job.base_dir, console.say)

    checkpoint = choose() if ranks is None else ranks.first_decides(choose)
    data = build_data(job, directory) if ranks is None else _data_in_turn(job, directory, ranks)
    engine = _engine(job, device, ranks)
    if checkpoint is None:
        state = _first_state(job, data)
    else:
        check_resume(checkpoint, data.source, job, console.say)
        engine.restore(checkpoint)
        state = checkpoint.state
        console.say(f"going on after step {state.step}, from {checkpoint.path}")
    if engine.is_first:
        write_run_files(directory, job.plan, job.settings, job.resolved_spec, job.base_dir)
        if ranks is not None:
            write_stages(directory, ranks.plan)
    console.total_steps = data.budget.steps
    progress = None if ranks is None else ranks.progress
    path = None if checkpoint is None else checkpoint.path
    return _Loop(job, directory, data, engine, state, console, path, progress)


def _data_in_turn(job: TrainJob, directory: RunDir, ranks: Ranks) -> Data:
    """The first rank makes what is cached (a tokenizer, tokens); the others find it."""
    data = build_data(job, directory) if ranks.is_first else None
    ranks.wait_for_all()
    return build_data(job, directory) if data is None else data


def _engine(job: TrainJob, device: torch.device, ranks: Ranks | None) -> Engine:
    if ranks is None:
        return OneProcess(build_model(job, device), job.plan, job.settings)
    return build_many_ranks(job, ranks.plan, ranks.groups, device, ranks.note)


def _first_state(job: TrainJob, data: Data) -> TrainState:
    return TrainState(
        step=0,
        samples=0,
        tokens=0,
        seconds=0.0,
        seed=job.settings.seed,
        fingerprint=data.source.fingerprint,
        settings=settings_to_json(job.settings),
    )


class _Loop:
    """Steps, with what is due between them. `state` is where the run stands."""

    def __init__(
        self,
        job: TrainJob,
        directory: RunDir,
        data: Data,
        engine: Engine,
        state: TrainState,
        console: RunConsole,
        checkpoint: Path | None,
        progress: Progress | None = None,
    ) -> None:
        self.data = data
        self.state = state
        self._job = job
        self._directory = directory
        self.engine = engine
        self._console = console
        self._checkpoint = checkpoint
        """The newest that is complete or will be."""
        self._last: StepRecord | None = None
        self._eval: dict[str, float] = {}
        self._skipped = 0
        self._is_abandoned = False
        self._progress = progress
        self._metrics: MetricsFile | None = None
        self._events: TensorBoard | None = None
        self._writer: CheckpointWriter | None = None
        if not engine.is_first:
            return
        self._writer = self._make_writer(checkpoint)
        with writing("metrics", directory.metrics):
            self._metrics = MetricsFile(directory.metrics, after_step=state.step)
        if "tensorboard" in job.settings.log:
            self._events = TensorBoard(directory.events, after_step=state.step)

    def _make_writer(self, checkpoint: Path | None) -> CheckpointWriter:
        save = self._job.settings.save
        writer = CheckpointWriter(
            self._directory.checkpoints,
            keep=None if save is None else optional_count(save, "keep"),
            before=self._sync_metrics,
            is_async=_is_async(save),
        )
        writer.last = checkpoint
        return writer

    def close(self) -> None:
        """A checkpoint that is being written is finished first."""
        try:
            if self._writer is not None and not self._is_abandoned:
                self._writer.finish()
        finally:
            self._close_files()

    def _close_files(self) -> None:
        if self._metrics is not None:
            self._metrics.close()
        if self._events is not None:
            self._events.close()

    def run(self, batches: Batches, request: StopRequest) -> RunResult:
        """Steps until the budget is spent or a stop is asked for."""
        stopped_by: int | None = None
        try:
            stopped_by = self.engine.agreed(request.number)
            while not self._is_done() and stopped_by is None:
                record = self._step(batches)
                self._report(record)
                if self._writer is not None:
                    self._writer.check()
                if self._is_done() or _is_due(self._job.settings.save, record.step):
                    self._save()
                stopped_by = self.engine.agreed(request.number)
            if self._is_done():
                stopped_by = None
                self._finish_saving()
            else:
                self._stop_early()
        except KeyboardInterrupt:
            stopped_by = request.number or signal.SIGINT
            self._is_abandoned = True
            if self._writer is not None:
                self._checkpoint = self._writer.last
            kept = self._checkpoint or "none yet"
            self._console.warn(f"stopped without saving; the last checkpoint is {kept}")
        return self._result(stopped_by)

    def _is_done(self) -> bool:
        return self.data.budget.is_done(self.state.step, self.state.samples)

    def _step(self, batches: Batches) -> StepRecord:
        """One update, its position in `state`, and the evaluation that is due after it."""
        started = time.perf_counter()
        step = self.state.step + 1
        if self._progress is not None:
            self._progress.note(step=step)
        indices, batch = batches.next()
        rate = learning_rate(self._job.settings.lr, step, self.data.budget.steps)
        with _explaining(step):
            result = self.engine.step(step, indices, batch, rate)
        self._count_skipped(step, result.bad)
        seconds = time.perf_counter() - started
        tokens = len(indices) * self._job.plan.tokens_per_sample
        self.state = replace(
            self.state,
            step=step,
            samples=self.state.samples + len(indices),
            tokens=self.state.tokens + tokens,
            seconds=self.state.seconds + seconds,
        )
        return StepRecord(
            step=step,
            loss=result.loss,
            losses=result.losses,
            tokens=self.state.tokens,
            lr=rate,
            grad_norm=result.grad_norm,
            tokens_per_s=tokens / seconds,
            seconds=self.state.seconds,
            skipped=result.bad,
            eval=self._evaluate(step),
        )

    def _count_skipped(self, step: int, bad: str | None) -> None:
        self._skipped = 0 if bad is None else self._skipped + 1
        if self._skipped >= _MAX_SKIPPED:
            raise RuntimeFault(
                f"step {step}: the last {_MAX_SKIPPED} steps were skipped because {bad} is not "
                "finite; try a lower `train.lr` or `train.clip`, or `train.precision = float32`"
            )

    def _evaluate(self, step: int) -> dict[str, float]:
        held_out = self.data.held_out
        if held_out is None or not (step % held_out.every == 0 or self._is_done()):
            return {}
        found = self.engine.evaluate(held_out)
        if found is not None:
            self._console.say(f"step {step}: {found}")
            self._eval = found.as_metrics()
        return self._eval

    def _report(self, record: StepRecord) -> None:
        self._last = record
        with writing("metrics", self._directory.metrics):
            if self._metrics is not None:
                self._metrics.write(record)
            if self._events is not None:
                self._events.write(record)
        self._console.step(record)

    def _save(self) -> None:
        """A checkpoint of this step, which is complete some time later."""
        if self._events is not None:
            self._events.sync()
        if self._writer is not None and self._writer.is_busy:
            self._console.say("waiting for the checkpoint before to reach the disk")
        self._finish_saving()
        snapshot = self.engine.snapshot(copy=_is_async(self._job.settings.save))
        if self._writer is not None and snapshot is not None:
            self._writer.start(self.state, snapshot)
        self._checkpoint = self._directory.checkpoints / checkpoint_name(self.state.step)

    def _finish_saving(self) -> None:
        if self._writer is not None:
            self._writer.finish()

    def _sync_metrics(self) -> None:
        """They reach the disk before the checkpoint of their last step."""
        with writing("metrics", self._directory.metrics):
            if self._metrics is not None:
                self._metrics.sync()

    def _stop_early(self) -> None:
        if self._checkpoint is None or self._checkpoint.name != checkpoint_name(self.state.step):
            self._save()
        self._finish_saving()
        self._console.warn(
            f"stopped after step {self.state.step}, saved in {self._checkpoint}; "
            f"to go on, type {self._job.again}"
        )

    def _result(self, stopped_by: int | None) -> RunResult:
        last = None if self._last is None else self._last.loss
        return RunResult(
            steps=self.state.step,
            loss=last,
            eval=self._eval,
            checkpoint=self._checkpoint,
            signal=stopped_by,
        )


def _is_async(save: Config | None) -> bool:
    return save is None or flag(save, "async", True)


def _is_due(every: Config | None, step: int) -> bool:
    return every is not None and step % interval(every) == 0


@contextmanager
def _explaining(step: int) -> Iterator[None]:
    """Say in one line what an exhausted memory means; everything else passes."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        known = isinstance(error, torch.OutOfMemoryError | MemoryError)
        if not known and "can't allocate memory" not in str(error):
            raise
        raise RuntimeFault(
            f"step {step}: out of memory; set a smaller `train.microbatch`, which changes no result"
        ) from error
