"""What all ranks have to know before an update: losses, norm, what is not finite, what has a gradient."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from giantdsl.plan import ParallelPlan
from giantdsl.runtime.device import wide_dtype
from giantdsl.runtime.groups import Group
from giantdsl.train.norms import sum_of_squares


@dataclass(frozen=True, slots=True)
class Verdict:
    """The same on every rank. `bad` names the first non-finite tensor and its stage.

    `reached` are the parameters that a backward pass reached on some rank.
    """

    losses: dict[str, float]
    norm: float
    bad: str | None
    reached: frozenset[str]


@dataclass(frozen=True, slots=True)
class Share:
    """What this rank looks at of gradients that lie together: all of it adds to the norm, or none."""

    elements: Tensor
    counts: bool


def judge(
    shares: Sequence[Share],
    gradients: Mapping[str, Tensor],
    losses: Mapping[str, Tensor],
    reached: set[str],
    plan: ParallelPlan,
    job: Group,
    device: torch.device,
) -> Verdict:
    """Collective over the whole job: one small all-reduce, a second where something is not finite.

    `gradients` has by name what lies in `shares`, and what other ranks look at of it. `losses` are
    what this rank adds to each: nothing where another rank stands for it.
    """
    names = [stored.info.name for stored in plan.parameters]
    wide = wide_dtype(device)
    zero = torch.zeros((), dtype=wide, device=device)
    squares = [sum_of_squares(share.elements) for share in shares]
    counted = [s for s, share in zip(squares, shares, strict=True) if share.counts]
    # Copies are looked at too: what only a copy has would otherwise be used unseen.
    others = [s for s, share in zip(squares, shares, strict=True) if not share.counts]
    suspects = (~torch.stack(others).isfinite()).sum().to(wide) if others else zero
    flags = torch.tensor([float(n in reached) for n in names], dtype=wide, device=device)
    head = [
        torch.stack(counted).sum() if counted else zero,
        suspects,
        *(losses[name].to(wide) if name in losses else zero for name in plan.model.losses),
    ]
    total = torch.cat([torch.stack(head), flags])
    _all_reduce(total, job)
    square, num_suspects, *rest = total.tolist()
    found = dict(zip(plan.model.losses, rest, strict=False))
    used = frozenset(n for n, f in zip(names, rest[len(found) :], strict=True) if f > 0)
    bad = _bad_loss(found, plan)
    if bad is None and not (math.isfinite(square) and num_suspects == 0):
        bad = _bad_gradient(gradients, plan, job, device)
    return Verdict(found, math.sqrt(square) if square >= 0 else math.nan, bad, used)


def _bad_loss(losses: Mapping[str, float], plan: ParallelPlan) -> str | None:
    for name, value in losses.items():
        if not math.isfinite(value):
            stages = tuple(s.index for s in plan.stages if name in s.losses)
            return f"loss `{name}`{_in_stages(stages, plan)}"
    return None


def _bad_gradient(
    gradients: Mapping[str, Tensor], plan: ParallelPlan, job: Group, device: torch.device
) -> str | None:
    """The first parameter, in the plan's order, whose gradient is not finite on some rank."""
    bad = {name for name, gradient in gradients.items() if not bool(gradient.isfinite().all())}
    flags = torch.tensor(
        [float(stored.info.name in bad) for stored in plan.parameters], device=device
    )
    _all_reduce(flags, job)
    for stored, flag in zip(plan.parameters, flags.tolist(), strict=True):
        if flag > 0:
            return f"gradient of `{stored.info.name}`{_in_stages(stored.stages, plan)}"
    return None


def _in_stages(stages: Sequence[int], plan: ParallelPlan) -> str:
    if len(plan.stages) < 2 or not stages:
        return ""
    word = "stage" if len(stages) == 1 else "stages"
    return f" of {word} {', '.join(map(str, stages))}"


def _all_reduce(tensor: Tensor, job: Group) -> None:
    if job.process_group is not None:
        dist.all_reduce(tensor, group=job.process_group)
