"""What is kept, and how long: activations as simulated, sends until they are known to be over."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from giantdsl.schedule.simulate import simulate
from giantdsl.testing.ranks import RankPool
from tests.distributed.toy_pipeline import Stage, batch, build

SCHEDULES = [
    ("gpipe", 2, 1),
    ("1f1b", 4, 1),
    ("interleaved", 2, 2),
    ("zero_bubble", 4, 1),
    ("zero_bubble", 2, 2),
]


@dataclass
class Count:
    live: int = 0
    peak: int = 0

    def drop(self) -> None:
        self.live -= 1


class _Counted(torch.autograd.Function):
    """A copy of x in memory that tells when it is freed."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, count: Count) -> Tensor:
        memory = _Memory(x.numel() * x.itemsize)
        copy = torch.frombuffer(memory, dtype=x.dtype).view(x.shape)
        copy.copy_(x.detach())
        weakref.finalize(memory, count.drop)
        count.live += 1
        count.peak = max(count.peak, count.live)
        return copy

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0], None


class _Memory(bytearray):
    pass


def counted(stages: dict[int, Stage]) -> Count:
    """How many inputs of `mix` layers are in memory: each stage saves one a microbatch."""
    count = Count()
    for stage in stages.values():
        stage.mix.register_forward_pre_hook(lambda _, args: _Counted.apply(args[0], count))
    return count


def peaks(rank: int, world: int, name: str, chunks: int, train: bool) -> tuple[int, int, int, int]:
    """In memory at most and afterwards; said by the executor at most, and simulated."""
    said: list[int] = []
    executor, stages = build(
        rank, name, world, chunks, note=lambda *_: said.append(executor.live_activations)
    )
    count = counted(stages)
    executor.run(*batch(7), train=train)
    simulated = simulate(executor.schedule(7, train)).peak_activations[rank]
    return count.peak, count.live, max(said), simulated


@pytest.mark.parametrize(("name", "pp", "chunks"), SCHEDULES)
def test_activations_live_as_long_as_simulated(
    ranks: RankPool, name: str, pp: int, chunks: int
) -> None:
    for peak, after, said, simulated in ranks.run(peaks, name, chunks, True, ranks=pp):
        assert (peak, after, said) == (simulated, 0, simulated)


def test_evaluation_has_one_microbatch_in_memory(ranks: RankPool) -> None:
    for result in ranks.run(peaks, "1f1b", 2, False, ranks=2):
        assert result == (1, 0, 0, 0)


def most_leaving(rank: int, world: int, name: str, count: int, train: bool) -> tuple[int, int]:
    """Messages that were being sent at one time, and after the step."""
    seen: list[int] = []
    executor, _ = build(
        rank, name, world, 1, note=lambda *_: seen.append(executor._messenger.num_leaving)
    )
    executor.run(*batch(count), train=train)
    return max(seen), executor._messenger.num_leaving


@pytest.mark.parametrize(
    ("name", "train"), [("1f1b", True), ("zero_bubble", True), ("1f1b", False)]
)
def test_sends_do_not_pile_up(ranks: RankPool, name: str, train: bool) -> None:
    for most, after in ranks.run(most_leaving, name, 24, train, ranks=3):
        assert most <= 8
        assert after == 0


def sent_in_memory(rank: int, world: int) -> list[int]:
    """Values that stage 0 sent and saved nowhere that are in memory before each backward pass."""
    count, seen = Count(), []

    def note(stage: int, words: str) -> None:
        if words.startswith("backward"):
            seen.append(count.live)

    def copied(_: object, __: object, results: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return (_Counted.apply(results[0], count), *results[1:])

    executor, stages = build(rank, "gpipe", world, 1, note=note)
    if rank == 0:
        stages[0].register_forward_hook(copied)
    executor.run(*batch(7))
    return seen


def test_what_was_sent_is_not_kept_for_the_backward_pass(ranks: RankPool) -> None:
    # It left as a copy, packed with the other small values.
    assert ranks.run(sent_in_memory, ranks=2)[0] == [0] * 7
