"""One optimizer step of many ranks."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from torch import Tensor

from giantdsl.train.parallel.optimizer import ParallelOptimizer
from giantdsl.train.step import StepResult


def take_parallel_step(
    run_batch: Callable[[], Mapping[str, Tensor]],
    optimizer: ParallelOptimizer,
    *,
    learning_rate: float,
    clip: float,
) -> StepResult:
    """Gradients of the whole batch's loss, clipped to norm `clip` (0: not at all), and an update.

    `run_batch` walks this rank's instructions, calling `optimizer.arm(stage)` before the last
    backward pass of a stage, and returns what its stages brought to each loss, weighted by the
    shares and summed over microbatches. Every rank calls this and gets the same result. Where a
    loss or a gradient is not finite anywhere, no rank updates anything.
    """
    optimizer.zero_grad()
    losses = run_batch()
    optimizer.finish()
    verdict = optimizer.judge(losses)
    if verdict.bad is None:
        if clip > 0 and verdict.norm > clip:
            optimizer.clip(clip / verdict.norm)
        optimizer.step(learning_rate)
    return StepResult(sum(verdict.losses.values()), verdict.losses, verdict.norm, verdict.bad)
