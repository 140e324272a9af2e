"""One model on many ranks, behind the calls of `Engine`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn

from giantdsl.errors import SettingsError
from giantdsl.mesh.slices import even_bounds
from giantdsl.plan import ParallelPlan
from giantdsl.runtime.device import compute_dtype, master_dtype
from giantdsl.runtime.executor import Executor
from giantdsl.runtime.groups import Group, Groups
from giantdsl.runtime.loader import build_module, load_source
from giantdsl.runtime.rank_model import RankModel, build_rank_model
from giantdsl.settings.values import TrainSettings
from giantdsl.train.batches import select_inputs
from giantdsl.train.checkpoint import Checkpoint
from giantdsl.train.engine import microbatch_noise
from giantdsl.train.evaluate import Evaluation, Total, evaluated_samples, evaluating
from giantdsl.train.job import TrainJob
from giantdsl.train.objective import Objective, batch_rows, rows_of, split_batch
from giantdsl.train.parallel.optimizer import (
    ParallelOptimizer,
    build_parallel_optimizer,
    combined_groups,
)
from giantdsl.train.parallel.shares import BatchShares
from giantdsl.train.parallel.step import take_parallel_step
from giantdsl.train.parallel.whole import (
    gather_parameters,
    gather_state,
    scatter_parameters,
    scatter_state,
)
from giantdsl.train.saving import Snapshot
from giantdsl.train.session import HeldOut
from giantdsl.train.step import StepResult

Part = Mapping[str, Tensor]


@dataclass(frozen=True, slots=True)
class ManyRanks:
    """What one rank does of every call. `counter` counts labels; it computes nothing else."""

    plan: ParallelPlan
    settings: TrainSettings
    groups: Groups
    model: RankModel
    optimizer: ParallelOptimizer
    executor: Executor
    counter: Objective

    @property
    def is_first(self) -> bool:
        return self.groups.rank == 0

    @property
    def data(self) -> Group:
        """The ranks that share out the rows of a batch."""
        return self.groups.over("dp", "ep")

    def rows(self, indices: range) -> Sequence[int]:
        start, stop = even_bounds(len(indices), self.data.size)[self.data.rank]
        return indices[start:stop]

    # ---- training -------------------------------------------------------------------------

    def step(
        self, step: int, indices: range, batch: Mapping[str, Tensor], learning_rate: float
    ) -> StepResult:
        mine = self.rows(indices)
        parts = self.parts(batch, len(indices))
        noise = self.noise(step, mine, parts)
        return take_parallel_step(
            lambda: self._run(parts, noise),
            self.optimizer,
            learning_rate=learning_rate,
            clip=self.settings.clip,
        )

    def _run(self, parts: Sequence[Part], noise: Sequence[Tensor | None]) -> Mapping[str, Tensor]:
        shares = self.shares(parts)
        losses = self.executor.run(parts, noise, shares.each)
        # Stages without a loss did not look.
        shares.wait()
        return losses

    def parts(self, batch: Part, total_rows: int) -> list[Part]:
        """This rank's microbatches: as many on each data rank, none of them empty."""
        least, most = total_rows // self.data.size, math.ceil(total_rows / self.data.size)
        if least == 0:
            raise SettingsError(
                f"a batch of {total_rows} samples has none for some of the {self.data.size} data"
                " ranks; choose `train.batch` so that the last batch is larger"
            )
        size = self.settings.microbatch or most
        if least == most:
            return list(split_batch(batch, self.plan.model.inputs, size))
        count = min(math.ceil(most / size), least)
        inputs = self.plan.model.inputs
        bounds = even_bounds(batch_rows(batch, inputs), count)
        return [rows_of(batch, inputs, start, stop) for start, stop in bounds]

    def noise(self, step: int, rows: Sequence[int], parts: Sequence[Part]) -> list[Tensor | None]:
        """Random numbers of each microbatch's samples; None for a model that draws none."""
        takes = self.counter.takes_noise
        (whole,) = microbatch_noise(takes, self.settings.seed, step, rows, None)
        if whole is None:
            return [None for _ in parts]
        sizes = [batch_rows(part, self.plan.model.inputs) for part in parts]
        return list(whole.split(sizes))

    def shares(self, parts: Sequence[Part]) -> BatchShares:
        """What each microbatch is of the whole batch, over all data ranks (invariant 1)."""
        return BatchShares(
            [self.counter.weights(part) for part in parts], self.data, self.optimizer.device
        )

    # ---- the rest -------------------------------------------------------------------------

    def evaluate(self, held_out: HeldOut) -> Evaluation | None:
        source, batch = held_out.source, self.settings.batch
        num_samples = evaluated_samples(source, batch, held_out.num_batches)
        total = Total(self.plan.model)
        with evaluating(*self.model.stages.values()), torch.no_grad():
            for start in range(0, num_samples, batch):
                indices = range(start, min(start + batch, num_samples))
                mine = self.rows(indices)
                samples = select_inputs(source.batch(mine), self.plan.model.inputs)
                total.add_bytes(source.bytes_of(samples))
                parts = self.parts(samples, len(indices))
                weights = [self.counter.weights(part) for part in parts]
                nothing: list[Tensor | None] = [None for _ in parts]
                sums = self.executor.run(parts, nothing, weights, train=False)
                total.add_sums(sums, weights)
        self._merge(total)
        return total.result(num_samples, source.tokens_per_byte) if self.is_first else None

    def _merge(self, total: Total) -> None:
        """Add up what the data ranks and stages saw; losses are whole over tp and cp."""
        names = self.plan.model.losses
        sums = {name: total.sums.get(name, 0.0) for name in names}
        rows = total.counts.get("", 0.0)
        counts = {name: total.counts.get(name, rows) for name in names}
        known = {"bytes": float(total.num_bytes or 0), "ranks": float(total.num_bytes is not None)}
        known = self._summed(self.data, known)
        total.replace(
            self._summed(self.groups.over("dp", "ep", "pp"), sums),
            self._summed(self.data, counts),
            int(known["bytes"]) if int(known["ranks"]) == self.data.size else None,
        )

    def _summed(self, group: Group, values: Mapping[str, float]) -> dict[str, float]:
        """Each value added up over the ranks of a group, in float64."""
        if group.process_group is None:
            return dict(values)
        found = torch.tensor(
            list(values.values()), dtype=torch.float64, device=self.optimizer.device
        )
        dist.all_reduce(found, group=group.process_group)
        return dict(zip(values, found.tolist(), strict=True))

    def restore(self, checkpoint: Checkpoint) -> None:
        first = self.is_first
        scatter_parameters(self.optimizer, checkpoint.model_tensors() if first else None)
        scatter_state(self.optimizer, checkpoint.optimizer_tensors() if first else None)

    def snapshot(self, *, copy: bool) -> Snapshot | None:
        # Tensors that were put together from pieces are copies anyway.
        parameters = {n: t for n, t in gather_parameters(self.optimizer) if t is not None}
        moments = {n: t for n, t in gather_state(self.optimizer) if t is not None}
        return Snapshot(parameters, moments) if self.is_first else None

    def agreed(self, signal: int | None) -> int | None:
        found = torch.tensor([signal or 0], dtype=torch.int64, device=self.optimizer.device)
        if self.optimizer.place.job.process_group is not None:
            dist.all_reduce(found, dist.ReduceOp.MAX, group=self.optimizer.place.job.process_group)
        return int(found) or None


def group_sets(plan: ParallelPlan) -> set[tuple[str, ...]]:
    """The sets of mesh axes over which something is summed: for `Groups.make`."""
    every = tuple(axis for axis, _ in plan.mesh)
    return {("dp", "ep"), ("dp", "ep", "pp"), every, *combined_groups(plan)}


def build_many_ranks(
    job: TrainJob,
    plan: ParallelPlan,
    groups: Groups,
    device: torch.device,
    note: Callable[[int, str], None] | None = None,
) -> ManyRanks:
    """This rank's part of the fresh model. Every rank builds at the same time.

    Raises SettingsError for settings that several processes do not have.
    """
    settings = job.settings
    if settings.compile:
        raise SettingsError("`train.compile` works on one process only so far; leave it out")
    precision = settings.precision
    model = build_rank_model(
        plan, groups, device, settings.seed, master_dtype(precision), search_path=job.base_dir
    )
    optimizer = build_parallel_optimizer(
        settings.optimizer, plan, groups, model.stages, precision=precision, freeze=settings.freeze
    )
    if settings.init is not None:
        scatter_parameters(optimizer, _initial_values(job) if groups.rank == 0 else None)
    for stage in model.stages.values():
        stage.train()
    executor = Executor(
        plan,
        groups,
        model.stages,
        model.axes,
        dtype=compute_dtype(precision),
        device=device,
        on_last_backward=optimizer.arm,
        on_stage_done=optimizer.stage_done,
        note=note,
    )
    return ManyRanks(plan, settings, groups, model, optimizer, executor, label_counter(job, plan))


def label_counter(job: TrainJob, plan: ParallelPlan) -> Objective:
    """The plain model without memory: only its counts of labels are asked for."""
    namespace = load_source(plan.model.source, plan.model.source_name, search_path=job.base_dir)
    with torch.device("meta"):
        module: nn.Module = getattr(namespace, plan.model.class_name)()
    dtype = compute_dtype(job.settings.precision)
    return Objective(module, plan.model, torch.device("cpu"), dtype)


def _initial_values(job: TrainJob) -> dict[str, Tensor]:
    """The whole model as `train.init` fills it, in the masters' type."""
    if job.initialize is None:
        raise SettingsError(f"`train.init = {job.settings.init}` cannot be loaded here")
    dtype = master_dtype(job.settings.precision)
    module = build_module(job.plan, "cpu", job.settings.seed, dtype, search_path=job.base_dir)
    with torch.no_grad():
        job.initialize(module)
    return {name: p.detach() for name, p in module.named_parameters()}
