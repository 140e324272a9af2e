"""Learning rates, by the numbers of invariant 11."""

from __future__ import annotations

import pytest

from giantdsl.attrs import Config
from giantdsl.errors import InternalError, SettingsError
from giantdsl.train.schedule import learning_rate


def schedule(name: str, **kwargs: float) -> Config:
    return Config(name, (), tuple(kwargs.items()))


@pytest.mark.parametrize("name", ["constant", "linear", "cosine", "rsqrt", "wsd"])
def test_every_schedule_warms_up_on_a_line_and_counts_steps_from_one(name: str) -> None:
    lr = schedule(name, peak=1e-3, warmup=10)
    assert learning_rate(lr, 1, 100) == pytest.approx(1e-4, rel=1e-15)
    assert learning_rate(lr, 4, 100) == pytest.approx(4e-4, rel=1e-15)
    assert learning_rate(lr, 5, 100) == pytest.approx(5e-4, rel=1e-15)
    assert learning_rate(lr, 10, 100) == 1e-3


@pytest.mark.parametrize("name", ["constant", "linear", "cosine", "rsqrt", "wsd"])
def test_without_warmup_the_first_step_has_a_rate(name: str) -> None:
    assert learning_rate(schedule(name, peak=1e-3, warmup=0), 1, 100) > 0.9e-3


def test_constant_stays() -> None:
    assert learning_rate(schedule("constant", peak=2e-3, warmup=0), 77, 100) == 2e-3


def test_linear_ends_at_the_floor_and_stays_there() -> None:
    lr = schedule("linear", peak=1.0, warmup=10, floor=0.2)
    assert learning_rate(lr, 60, 110) == pytest.approx(0.6)
    assert learning_rate(lr, 110, 110) == 0.2
    assert learning_rate(lr, 200, 110) == 0.2


def test_cosine_is_half_way_in_the_middle_and_ends_at_the_floor() -> None:
    lr = schedule("cosine", peak=1.0, warmup=10, floor=0.1)
    assert learning_rate(lr, 60, 110) == pytest.approx(0.55)
    assert learning_rate(lr, 35, 110) == pytest.approx(0.1 + 0.9 * 0.5 * (1 + 2**-0.5))
    assert learning_rate(lr, 110, 110) == 0.1


def test_rsqrt_falls_with_the_root_of_the_step() -> None:
    lr = schedule("rsqrt", peak=0.01, warmup=100)
    assert learning_rate(lr, 100, 10_000) == 0.01
    assert learning_rate(lr, 400, 10_000) == pytest.approx(0.005)
    assert learning_rate(lr, 10_000, 10_000) == pytest.approx(0.001)


def test_wsd_is_stable_and_then_falls_in_its_share_of_the_steps() -> None:
    lr = schedule("wsd", peak=1.0, warmup=10, decay=0.2, floor=0.1)
    assert learning_rate(lr, 11, 100) == 1.0
    assert learning_rate(lr, 80, 100) == 1.0
    assert learning_rate(lr, 90, 100) == pytest.approx(0.55)
    assert learning_rate(lr, 100, 100) == 0.1


def test_a_warmup_longer_than_the_run_only_climbs() -> None:
    lr = schedule("cosine", peak=1.0, warmup=100, floor=0.0)
    assert [learning_rate(lr, s, 10) for s in (1, 10)] == [0.01, 0.1]


def test_unknown_schedules_and_incomplete_arguments_are_errors() -> None:
    with pytest.raises(SettingsError, match="`warble`, which is not one of `constant`"):
        learning_rate(schedule("warble", peak=1.0), 1, 10)
    with pytest.raises(InternalError, match="no number `peak`"):
        learning_rate(schedule("constant"), 1, 10)
