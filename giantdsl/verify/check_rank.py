"""One step of a layout on its ranks, compared on rank 0 with what one process computes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from giantdsl.errors import RuntimeFault
from giantdsl.plan import ParallelPlan
from giantdsl.runtime.groups import Groups
from giantdsl.runtime.rank_model import mesh_of
from giantdsl.train.job import TrainJob
from giantdsl.train.many_ranks import ManyRanks, build_many_ranks, group_sets
from giantdsl.train.objective import batch_axis, batch_rows
from giantdsl.train.parallel.replicas import check_replicas
from giantdsl.train.parallel.whole import gather_gradients, gather_parameters
from giantdsl.train.schedule import learning_rate
from giantdsl.verify.compare import (
    Piece,
    assemble,
    disagreement,
    floor_of,
    piece_of,
    relative_error,
)
from giantdsl.verify.reference import Reference, recorded


@dataclass(frozen=True, slots=True)
class Task:
    """What every rank of a layout needs. The reference lies in a file: only rank 0 reads it."""

    plan: ParallelPlan
    job: TrainJob
    batch: Path
    reference: Path
    shares: str = "counted"


@dataclass(frozen=True, slots=True)
class Finding:
    """How far a tensor is from one process's, relative. `kind` is loss, block, gradient, norm, update."""

    kind: str
    name: str
    error: float


def check_rank(rank: int, world: int, task: Task) -> list[Finding] | None:
    """Run the step; on rank 0 compare everything, in the order it was computed."""
    torch.set_num_threads(1)
    plan = task.plan
    groups = Groups.make(mesh_of(plan), rank, group_sets(plan))
    many = build_many_ranks(task.job, plan, groups, torch.device("cpu"))
    batch = torch.load(task.batch, weights_only=True)
    total = batch_rows(batch, plan.model.inputs)
    mine = many.rows(range(total))
    parts = many.parts(_select(plan, batch, mine), total)
    counted = many.shares(parts)
    shares = _broken_shares(task, counted.each)
    many.optimizer.zero_grad()
    with _recorded(many) as seen:
        losses = many.executor.run(parts, many.noise(1, mine, parts), shares)
    counted.wait()
    many.optimizer.finish()
    verdict = many.optimizer.judge(losses)
    gradients = dict(gather_gradients(many.optimizer))
    if task.job.settings.clip > 0 and verdict.norm > task.job.settings.clip:
        many.optimizer.clip(task.job.settings.clip / verdict.norm)
    settings = task.job.settings
    many.optimizer.step(learning_rate(settings.lr, 1, settings.steps or 1))
    updated = dict(gather_parameters(many.optimizer))
    copies = _copies(many)
    pieces = _gather(_pieces(many, seen, parts, mine), rank, world)
    if rank != 0:
        return None
    reference = Reference.load(task.reference)
    blocks = _block_findings(reference, pieces)
    return [
        *blocks,
        *_loss_findings(reference, verdict.losses),
        *_tensor_findings("gradient", reference.gradients, gradients),
        Finding("norm", "gradient norm", _relative(verdict.norm, reference.norm)),
        *_tensor_findings("update", reference.updated, updated),
        *copies,
    ]


def _copies(many: ManyRanks) -> list[Finding]:
    """Are the copies of every parameter the same after the step (invariant 5)?"""
    try:
        check_replicas(many.optimizer)
    except RuntimeFault as fault:
        return [Finding("copies", str(fault), math.inf)]
    return []


def _select(
    plan: ParallelPlan, batch: Mapping[str, Tensor], rows: Sequence[int]
) -> dict[str, Tensor]:
    index = torch.tensor(list(rows))
    chosen = dict(batch)
    for info in plan.model.inputs:
        axis = batch_axis(info)
        if axis is not None and info.name in batch:
            chosen[info.name] = batch[info.name].index_select(axis, index)
    return chosen


def _broken_shares(task: Task, shares: list[Mapping[str, float]]) -> list[Mapping[str, float]]:
    """What the mutant `mean_of_means` breaks: microbatches weigh the same, whatever they hold."""
    if task.shares == "counted":
        return shares
    return [dict.fromkeys(share, 1.0 / len(shares)) for share in shares]


# ---- activations ---------------------------------------------------------------------------


@contextmanager
def _recorded(many: ManyRanks) -> Iterator[dict[int, dict[str, list[tuple[Tensor, ...]]]]]:
    """By stage of this rank, what each call of its blocks returned."""
    counts = {s.index: {name: len(v) for name, v in s.blocks} for s in many.plan.stages}
    with ExitStack() as stack:
        yield {
            stage: stack.enter_context(recorded(module, counts[stage]))
            for stage, module in many.model.stages.items()
        }


def _pieces(
    many: ManyRanks,
    seen: Mapping[int, Mapping[str, Sequence[tuple[Tensor, ...]]]],
    parts: Sequence[Mapping[str, Tensor]],
    rows: Sequence[int],
) -> dict[tuple[str, int], list[Piece]]:
    """What this rank has of every block's results, with its place in the whole."""
    infos = {n: v for s in many.plan.stages if s.index in seen for n, v in s.blocks}
    sizes = [batch_rows(part, many.plan.model.inputs) for part in parts]
    numbers = torch.tensor(list(rows)).split(sizes)
    found: dict[tuple[str, int], list[Piece]] = {}
    for calls in seen.values():
        for name, results in calls.items():
            for samples, outputs in zip(numbers, results, strict=True):
                for i, (value, tensor) in enumerate(zip(infos[name], outputs, strict=True)):
                    piece = piece_of(value, tensor, samples, many.model.axes)
                    found.setdefault((name, i), []).append(piece)
    return found


def _gather(
    own: dict[tuple[str, int], list[Piece]], rank: int, world: int
) -> dict[tuple[str, int], list[Piece]]:
    if world == 1:
        return own
    boxes: list[dict[tuple[str, int], list[Piece]] | None] | None = [None] * world
    dist.gather_object(own, boxes if rank == 0 else None, dst=0)
    found: dict[tuple[str, int], list[Piece]] = {}
    for box in boxes or []:
        for key, pieces in (box or {}).items():
            found.setdefault(key, []).extend(pieces)
    return found


def _block_findings(
    reference: Reference, pieces: Mapping[tuple[str, int], list[Piece]]
) -> list[Finding]:
    found: list[Finding] = []
    for name, results in reference.blocks.items():
        for i, wanted in enumerate(results):
            made = assemble(pieces.get((name, i), []), wanted)
            floor = max(float(wanted.abs().max()), 1e-12) if wanted.numel() else 1.0
            error = relative_error(made, wanted, floor)
            error = max(error, disagreement(pieces.get((name, i), []), made) / floor)
            found.append(Finding("block", name, error))
    return found


# ---- losses, gradients, updates ------------------------------------------------------------


def _loss_findings(reference: Reference, losses: Mapping[str, float]) -> list[Finding]:
    return [
        Finding("loss", name, _relative(losses.get(name, math.nan), value))
        for name, value in reference.losses.items()
    ]


def _relative(found: float, wanted: float) -> float:
    error = abs(found - wanted) / max(abs(wanted), 1e-12)
    return error if math.isfinite(error) else math.inf


def _tensor_findings(
    kind: str, wanted: Mapping[str, Tensor], found: Mapping[str, Tensor | None]
) -> list[Finding]:
    floor = floor_of(wanted)
    findings: list[Finding] = []
    for name, tensor in wanted.items():
        made = found.get(name)
        error = math.inf if made is None else relative_error(made, tensor, floor)
        findings.append(Finding(kind, name, error))
    extra = [name for name, tensor in found.items() if tensor is not None and name not in wanted]
    return [*findings, *(Finding(kind, name, math.inf) for name in extra)]
