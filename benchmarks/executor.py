"""What the executor costs beside the work of its stages, in one process.

    python benchmarks/executor.py [--repeats 15] [--microbatches 64] [--width 8]

A step of the executor with one stage against a plain loop of the same calls, alternating. The
difference is divided by the number of instructions, two a microbatch. Pipelines beside their
peers are in `parallel.py`.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

from giantdsl.plan import InputInfo, ParallelPlan, Plan, StageInfo
from giantdsl.runtime.axes import Axes
from giantdsl.runtime.executor import Executor
from giantdsl.runtime.groups import Groups

ROWS = 4


class Stage(nn.Module):
    """One linear layer and a loss."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.mix = nn.Linear(width, width)
        self.losses: dict[str, Tensor] = {}

    def forward(self, feature: Tensor) -> tuple[Tensor, ...]:
        self.losses = {"lm": (torch.tanh(self.mix(feature)) ** 2).mean()}
        return ()


def plan_of(width: int) -> ParallelPlan:
    feature = InputInfo("feature", ("b", "d"), (None, width), "float", None, (), False)
    stage = StageInfo(0, "", "", "", ("feature",), (), (), (), (), ("lm",), False, "")
    model = Plan("bench", "", "", "", (feature,), (), (), 0, ("lm",), (), (), 1, 1)
    return ParallelPlan(model, (("pp", 1),), (), (stage,), (), (), "1f1b", 0)


def our_step(stage: Stage, parts: list[Tensor], width: int) -> Callable[[], object]:
    groups = Groups.single()
    executor = Executor(plan_of(width), groups, {0: stage}, Axes(groups))
    batch = [{"feature": part} for part in parts]
    noise, shares = [None] * len(parts), [{"": 1 / len(parts)}] * len(parts)
    return lambda: executor.run(batch, noise, shares)


def plain_step(stage: Stage, parts: list[Tensor]) -> Callable[[], object]:
    def step() -> None:
        total = torch.zeros(())
        for part in parts:
            stage(part)
            weighted = stage.losses["lm"] / len(parts)
            total += weighted.detach()
            weighted.backward()

    return step


def seconds(step: Callable[[], object]) -> float:
    started = time.perf_counter()
    step()
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--microbatches", type=int, default=64)
    parser.add_argument("--width", type=int, default=8)
    options = parser.parse_args()
    torch.set_num_threads(1)
    stage = Stage(options.width)
    parts = [torch.randn(ROWS, options.width) for _ in range(options.microbatches)]
    ours, plain = our_step(stage, parts, options.width), plain_step(stage, parts)
    pairs = [(seconds(ours), seconds(plain)) for _ in range(options.repeats + 2)][2:]
    count = 2 * options.microbatches
    more = [(a - b) / count * 1e6 for a, b in pairs]
    loop = statistics.median(b for _, b in pairs) / count * 1e6
    low, _, high = statistics.quantiles(more, n=4)
    print(f"executor: {statistics.median(more):.1f} us an instruction ({low:.1f} to {high:.1f})")
    print(f"plain loop, for comparison: {loop:.1f} us of work an instruction")


if __name__ == "__main__":
    main()
