"""Losses whose classes or rows are divided: each a mean over the whole, the same on every rank."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

from giantdsl.runtime.axes import Slices
from giantdsl.runtime.collectives import all_reduced, reduce_from
from giantdsl.runtime.groups import Group
from giantdsl.runtime.prelude import losses as prelude

_NARROW = (torch.float16, torch.bfloat16)


def cross_entropy(
    logits: Tensor,
    labels: Tensor,
    *,
    ignore: int,
    smooth: float = 0.0,
    weight: Tensor | None = None,
    classes: Slices | None = None,
    over: Sequence[Group] = (),
) -> Tensor:
    """Mean loss of the labels [..] that are not `ignore`, 0 if there are none.

    logits [.., classes of this rank]; `classes` says which they are. `over` are the groups whose
    ranks have other rows: the mean is over all of theirs. With `weight` [..], the weighted sum
    over the sum of weights.
    """
    over = [group for group in over if group.size > 1]
    if classes is not None and classes.group.size == 1:
        classes = None
    if classes is None and not over:
        return prelude.cross_entropy(logits, labels, ignore=ignore, smooth=smooth, weight=weight)
    rows, index = logits.flatten(0, -2), labels.flatten()
    if rows.dtype in _NARROW:
        rows = rows.float()
    valid = index != ignore
    if classes is None:
        loss = F.cross_entropy(
            rows, index, ignore_index=ignore, label_smoothing=smooth, reduction="none"
        )
    else:
        loss = _DividedSoftmax.apply(rows, index, valid, classes, smooth)
    counted = valid.to(loss.dtype) if weight is None else weight.flatten() * valid
    return _mean(loss * counted, counted.sum(), over)


def z_loss(logits: Tensor, classes: Slices | None = None, over: Sequence[Group] = ()) -> Tensor:
    """Mean over all positions of the squared logsumexp over the last axis (Chowdhery 2022)."""
    over = [group for group in over if group.size > 1]
    if classes is not None and classes.group.size == 1:
        classes = None
    if classes is None and not over:
        return prelude.z_loss(logits)
    if logits.dtype in _NARROW:
        logits = logits.float()
    total = logits.logsumexp(-1) if classes is None else _log_sum_exp(logits, classes.group)
    return _mean(total.square(), torch.tensor(float(total.numel()), dtype=total.dtype), over)


def mse(a: Tensor, b: Tensor, over: Sequence[Group] = ()) -> Tensor:
    """Mean squared difference over all elements of the groups."""
    over = [group for group in over if group.size > 1]
    if not over:
        return F.mse_loss(a, b)
    return _mean((a - b).square(), torch.tensor(float(a.numel()), dtype=a.dtype), over)


def _mean(terms: Tensor, count: Tensor, over: Sequence[Group]) -> Tensor:
    """Sum over count, both over all groups; 0 where nothing is counted."""
    total, count = terms.sum(), count.detach().to(terms.device)
    for group in over:
        total, count = reduce_from(total, group), all_reduced(count, group)
    return total / torch.where(count == 0, 1.0, count)


def _log_sum_exp(logits: Tensor, group: Group) -> Tensor:
    """Over the last axis and all ranks of the group; what has no element here adds nothing."""
    most = _largest(logits.detach(), group)
    total = reduce_from((logits - most.unsqueeze(-1)).exp().sum(-1), group)
    return total.log() + most


def _largest(logits: Tensor, group: Group) -> Tensor:
    shape = logits.shape[:-1]
    most = logits.amax(-1) if logits.size(-1) else logits.new_full(shape, -torch.inf)
    dist.all_reduce(most, dist.ReduceOp.MAX, group=group.process_group)
    return most


class _DividedSoftmax(torch.autograd.Function):
    """Token losses [n] of logits [n, classes of this rank], as Megatron's vocab-parallel loss.

    One buffer of the size of the logits is kept: the softmax, which becomes the gradient.
    """

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, labels: Tensor, valid: Tensor, classes: Slices, smooth: float
    ) -> Tensor:
        group = classes.group
        shifted = logits - _largest(logits, group).unsqueeze(-1)
        inside = (labels >= classes.start) & (labels < classes.stop) & valid
        place = torch.where(inside, labels - classes.start, 0)
        target = shifted.new_zeros(labels.shape)
        if classes.size:
            target = shifted.gather(-1, place.unsqueeze(-1)).squeeze(-1) * inside
        all_logits = shifted.sum(-1) if smooth else torch.zeros_like(target)
        softmax = shifted.exp_()
        sums = torch.stack([softmax.sum(-1), target, all_logits])
        dist.all_reduce(sums, group=group.process_group)
        total, target, all_logits = sums.unbind()
        softmax.div_(total.unsqueeze(-1))
        log_total = total.log()
        loss = log_total - target
        if smooth:
            loss = (1 - smooth) * loss + smooth * (log_total - all_logits / classes.whole)
        ctx.save_for_backward(softmax, place, inside)
        ctx.smooth, ctx.whole = smooth, classes.whole
        return torch.where(valid, loss, 0.0)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        softmax, place, inside = ctx.saved_tensors
        given = softmax.clone()
        if given.size(-1):
            hit = (inside.to(given.dtype) * (1 - ctx.smooth)).unsqueeze(-1)
            given.scatter_add_(-1, place.unsqueeze(-1), -hit)
        if ctx.smooth:
            given.sub_(ctx.smooth / ctx.whole)
        return given.mul_(gradients[0].unsqueeze(-1)), None, None, None, None
