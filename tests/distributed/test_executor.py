"""The executor computes what one process computes: every schedule, any number of microbatches."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from giantdsl.errors import InternalError, RuntimeFault, SettingsError
from giantdsl.runtime import executor as executor_module
from giantdsl.schedule.instructions import Forward, Schedule
from giantdsl.testing.ranks import RankPool
from tests.distributed.toy_pipeline import batch, build, gradients, reference

COUNTS = (1, 3, 7)
LAYOUTS = [
    *[(name, pp, 1) for name in ("gpipe", "1f1b", "zero_bubble") for pp in (1, 2, 4)],
    *[("interleaved", pp, 2) for pp in (1, 2, 4)],
    ("zero_bubble", 2, 2),
    ("gpipe", 2, 3),
    ("1f1b", 1, 4),
]
Result = tuple[dict[str, float], dict[str, Tensor]]


def run_layout(rank: int, world: int, schedule: str, pp: int, chunks: int) -> list[Result]:
    """This rank's losses and gradients for each number of microbatches."""
    executor, stages = build(rank, schedule, pp, chunks)
    found: list[Result] = []
    for count in COUNTS:
        losses = executor.run(*batch(count))
        found.append(
            (
                {n: v.item() for n, v in losses.items()},
                {n: g.clone() for n, g in gradients(stages).items()},
            )
        )
        for stage in stages.values():
            stage.zero_grad()
    assert executor.live_activations == 0
    return found


def on_ranks(pool: RankPool, schedule: str, pp: int, chunks: int) -> list[list[Result]]:
    """By pipeline rank; one rank runs right here."""
    if pp == 1:
        return [run_layout(0, 1, schedule, pp, chunks)]
    return pool.run(run_layout, schedule, pp, chunks, ranks=pp)


def assert_close(found: Tensor, wanted: Tensor, name: str) -> None:
    error = (found - wanted).abs().max().item() / max(wanted.abs().max().item(), 1e-6)
    assert error < 1e-12, f"{name}: {error}"


@pytest.mark.parametrize(("schedule", "pp", "chunks"), LAYOUTS)
def test_losses_and_gradients_are_those_of_one_process(
    ranks: RankPool, schedule: str, pp: int, chunks: int
) -> None:
    by_rank = on_ranks(ranks, schedule, pp, chunks)
    for at, count in enumerate(COUNTS):
        losses, wanted = reference(pp * chunks, *batch(count))
        found_losses: dict[str, float] = {}
        found: dict[str, Tensor] = {}
        for results in by_rank:
            found_losses |= results[at][0]
            found |= results[at][1]
        assert found_losses.keys() == losses.keys()
        for name, loss in losses.items():
            assert math.isclose(found_losses[name], loss, rel_tol=1e-12)
        assert found.keys() == wanted.keys()
        for name, gradient in wanted.items():
            assert_close(found[name], gradient, f"{schedule}, {count} microbatches, {name}")


def run_forward(rank: int, world: int, pp: int, chunks: int) -> tuple[dict[str, float], bool, int]:
    """Losses without gradients, whether any gradient came, and what was kept."""
    executor, stages = build(rank, "interleaved", pp, chunks)
    parts, noise, shares = batch(7)
    losses = executor.run(parts, noise, shares, train=False)
    reached = any(g is not None for g in gradients(stages).values())
    assert not any(v.requires_grad for v in losses.values())
    del parts[3]["labels"]
    without = executor.run(parts, noise, shares, train=False)
    if "lm" in losses:
        assert without["lm"] != losses["lm"]
    return {n: v.item() for n, v in losses.items()}, reached, executor.live_activations


@pytest.mark.parametrize(("pp", "chunks"), [(1, 2), (2, 1), (2, 2), (4, 2)])
def test_forward_only_keeps_nothing(ranks: RankPool, pp: int, chunks: int) -> None:
    if pp == 1:
        results = [run_forward(0, 1, pp, chunks)]
    else:
        results = ranks.run(run_forward, pp, chunks, ranks=pp)
    wanted, _ = reference(pp * chunks, *batch(7))
    found: dict[str, float] = {}
    for losses, reached, live in results:
        assert (reached, live) == (False, 0)
        found |= losses
    assert found == pytest.approx(wanted, rel=1e-12)


# ---- zero bubble ---------------------------------------------------------------------------


def test_zero_bubble_puts_weight_gradients_off() -> None:
    seen: list[tuple[str, bool, bool]] = []

    def note(stage: int, words: str) -> None:
        first = stages[0]
        seen.append((words, first.mix.weight.grad is not None, first.gain.grad is not None))

    executor, stages = build(0, "zero_bubble", 1, 1, note=note)
    executor.run(*batch(1))
    assert seen == [
        ("forward of microbatch 0", False, False),
        ("backward of inputs of microbatch 0", False, False),
        ("backward of weights of microbatch 0", False, True),
    ]
    assert stages[0].mix.weight.grad is not None


# ---- hooks ---------------------------------------------------------------------------------


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "interleaved", "zero_bubble"])
def test_hooks_stand_around_the_last_backward_of_a_stage(schedule: str) -> None:
    events: list[str] = []
    executor, _ = build(
        0,
        schedule,
        1,
        2,
        on_last_backward=lambda stage: events.append(f"{stage} begins"),
        on_stage_done=lambda stage: events.append(f"{stage} is done"),
        note=lambda stage, words: events.append(f"{stage} {words}"),
    )
    executor.run(*batch(3))
    words = "backward of weights" if schedule == "zero_bubble" else "backward"
    # A weight that is used twice gets two gradients where the pass is split: none is known as last.
    begins = 0 if schedule == "zero_bubble" else 1
    for stage in (0, 1):
        last = [i for i, e in enumerate(events) if e.startswith(f"{stage} {words} of mic")][-1]
        wanted = [f"{stage} begins"] * begins + [f"{stage} is done"]
        assert events[last + 1 : last + 2 + begins] == wanted
        assert events.count(f"{stage} begins") == begins
    executor.run(*batch(3), train=False)
    assert events.count("0 begins") == begins
    assert events.count("0 is done") == 1


# ---- failures ------------------------------------------------------------------------------


def test_a_failure_says_rank_stage_and_instruction() -> None:
    executor, stages = build(0, "1f1b", 1, 2)
    calls: list[int] = []

    def fail(*_: object) -> None:
        calls.append(0)
        if len(calls) == 2:
            raise ValueError("not this one\nand more")

    stages[1].register_forward_pre_hook(fail)
    with pytest.raises(RuntimeFault) as caught:
        executor.run(*batch(3))
    assert str(caught.value) == "rank 0, stage 1, forward of microbatch 1: not this one"
    assert isinstance(caught.value.__cause__, ValueError)


def test_an_error_of_the_user_stays_one_and_says_where() -> None:
    executor, stages = build(0, "1f1b", 1, 1)

    def fail(*_: object) -> None:
        raise SettingsError("choose another")

    stages[0].mix.register_full_backward_pre_hook(fail)
    with pytest.raises(SettingsError, match="^choose another") as caught:
        executor.run(*batch(1))
    assert caught.value.__notes__ == ["rank 0, stage 0, backward of microbatch 0"]


def test_a_schedule_that_does_not_finish_stops_before_the_first_instruction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(name: str, pp: int, stages: int, count: int, *, train: bool) -> Schedule:
        return Schedule(name, stages, count, ((Forward(1, 0), Forward(0, 0)),))

    monkeypatch.setattr(executor_module, "build_schedule", broken)
    heard: list[str] = []
    executor, _ = build(0, "1f1b", 1, 2, note=lambda _, words: heard.append(words))
    with pytest.raises(InternalError, match="schedule `1f1b` does not finish"):
        executor.run(*batch(1))
    assert heard == []


@pytest.mark.parametrize("results", [(), torch.zeros(3)], ids=["too few", "no tuple"])
def test_a_stage_that_returns_something_else_is_our_mistake(results: object) -> None:
    executor, stages = build(0, "1f1b", 1, 2)
    stages[0].register_forward_hook(lambda *_: results)
    with pytest.raises(InternalError, match="stage 0 returned"):
        executor.run(*batch(1))


def send_wrong(rank: int, world: int, dtype: torch.dtype) -> str:
    executor, stages = build(rank, "1f1b", 2, 1)

    def change(_: object, __: object, results: Sequence[Tensor]) -> tuple[Tensor, ...]:
        return (results[0].to(dtype), *results[1:])

    if rank == 0:
        stages[0].register_forward_hook(change)
        with pytest.raises(InternalError) as caught:
            executor.run(*batch(1))
        return str(caught.value)
    return ""


def test_a_value_of_another_type_than_planned_is_named(ranks: RankPool) -> None:
    text = ranks.run(send_wrong, torch.float32, ranks=2)[0]
    assert "`x` from stage 0 is float32 [1, 8, 6] where stage 1 expects float64 [1, 8, 6]" in text
