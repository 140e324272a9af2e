"""Every schedule over small numbers of ranks, stages and microbatches; bubbles and peaks."""

from __future__ import annotations

import itertools
from fractions import Fraction

import pytest

from giantdsl.schedule.build import SCHEDULES, build_schedule
from giantdsl.schedule.check import check_schedule
from giantdsl.schedule.instructions import (
    Backward,
    BackwardInput,
    BackwardWeight,
    Compute,
    Forward,
    Receive,
    RecvActivation,
    RecvGradient,
    Schedule,
    SendActivation,
    SendGradient,
)
from giantdsl.schedule.order import microbatch_groups
from giantdsl.schedule.simulate import Simulation, simulate

RANKS, CHUNKS, MICROBATCHES = range(1, 6), range(1, 4), range(1, 10)
SIZES = list(itertools.product(RANKS, CHUNKS))


def simulated(name: str, num_ranks: int, num_stages: int, num_microbatches: int) -> Simulation:
    return simulate(build_schedule(name, num_ranks, num_stages, num_microbatches))


def idle_share(simulation: Simulation) -> Fraction:
    """The bubble, exactly: all costs here are integers."""
    whole = Fraction(simulation.total) * len(simulation.busy)
    return 1 - Fraction(sum(simulation.busy)) / whole


def compute_of(schedule: Schedule) -> list[list[Compute]]:
    return [[i for i in program if isinstance(i, Compute)] for program in schedule.ranks]


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize(("p", "v"), SIZES)
def test_each_stage_computes_each_microbatch_once_and_nobody_waits_for_ever(
    name: str, p: int, v: int
) -> None:
    for m in MICROBATCHES:
        schedule = build_schedule(name, p, p * v, m)
        simulation = simulate(schedule)
        done: dict[tuple[int, int], list[type[Compute]]] = {}
        for rank, program in enumerate(compute_of(schedule)):
            for i in program:
                assert i.stage % p == rank
                done.setdefault((i.stage, i.microbatch), []).append(type(i))
        assert done.keys() == set(itertools.product(range(p * v), range(m)))
        backward = [BackwardInput, BackwardWeight] if name == "zero_bubble" else [Backward]
        assert all(kinds == [Forward, *backward] for kinds in done.values())
        assert simulation.busy == (3 * v * m,) * p


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize(("p", "v"), SIZES)
def test_every_send_has_its_receive_in_the_order_of_its_link(
    name: str, p: int, v: int, train: bool
) -> None:
    for m in MICROBATCHES:
        schedule = build_schedule(name, p, p * v, m, train=train)
        sent: dict[tuple[int, int], list[object]] = {}
        received: dict[tuple[int, int], list[object]] = {}
        for rank, program in enumerate(schedule.ranks):
            for i in program:
                if isinstance(i, SendActivation):
                    sent.setdefault((rank, (i.stage + 1) % p), []).append(i.message)
                elif isinstance(i, SendGradient):
                    sent.setdefault((rank, (i.stage - 1) % p), []).append(i.message)
                elif isinstance(i, RecvActivation):
                    received.setdefault(((i.stage - 1) % p, rank), []).append(i.message)
                elif isinstance(i, RecvGradient):
                    received.setdefault(((i.stage + 1) % p, rank), []).append(i.message)
        assert sent == received
        messages = [message for order in sent.values() for message in order]
        edges = 0 if p == 1 else p * v - 1
        assert len(messages) == len(set(messages)) == edges * m * (2 if train else 1)


@pytest.mark.parametrize(("p", "v"), SIZES)
def test_forward_only_has_no_backward_and_keeps_nothing(p: int, v: int) -> None:
    for m in MICROBATCHES:
        schedules = [build_schedule(name, p, p * v, m, train=False) for name in SCHEDULES]
        assert len({schedule.ranks for schedule in schedules}) == 1
        simulation = simulate(schedules[0])
        kinds = {type(i) for program in compute_of(schedules[0]) for i in program}
        assert kinds == {Forward}
        assert simulation.peak_activations == (0,) * p
        if m >= p:
            assert simulation.total == v * m + p - 1


@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
@pytest.mark.parametrize("p", RANKS)
def test_bubble_of_gpipe_and_1f1b(name: str, p: int) -> None:
    for m in MICROBATCHES:
        assert idle_share(simulated(name, p, p, m)) == Fraction(p - 1, m + p - 1)


def test_bubbles_as_numbers() -> None:
    """4 ranks, 8 microbatches: 3 idle of 11, of 19 with two chunks; zero bubble 3 of 27."""
    assert simulated("gpipe", 4, 4, 8).bubble == pytest.approx(3 / 11, abs=1e-12)
    assert simulated("1f1b", 4, 4, 8).bubble == pytest.approx(3 / 11, abs=1e-12)
    assert simulated("interleaved", 4, 8, 8).bubble == pytest.approx(3 / 19, abs=1e-12)
    assert simulated("zero_bubble", 4, 4, 8).bubble == pytest.approx(3 / 27, abs=1e-12)
    assert simulated("zero_bubble", 4, 8, 8).bubble == pytest.approx(3 / 51, abs=1e-12)


@pytest.mark.parametrize("name", ["interleaved", "1f1b", "gpipe"])
@pytest.mark.parametrize(("p", "v"), SIZES)
def test_bubble_of_several_chunks(name: str, p: int, v: int) -> None:
    """Of any number of microbatches from p on, multiples of p or not."""
    for m in range(p, 14):
        assert idle_share(simulated(name, p, p * v, m)) == Fraction(p - 1, v * m + p - 1)


@pytest.mark.parametrize(("p", "v"), SIZES)
def test_zero_bubble_idles_a_third_of_1f1b(p: int, v: int) -> None:
    for m in range(p, 14):
        bubble = idle_share(simulated("zero_bubble", p, p * v, m))
        assert bubble == Fraction(p - 1, 3 * v * m + p - 1)


@pytest.mark.parametrize(("p", "v"), [(p, v) for p, v in SIZES if p > 1])
def test_zero_bubble_is_faster_than_1f1b_and_holds_no_more(p: int, v: int) -> None:
    for m in MICROBATCHES:
        ours, theirs = simulated("zero_bubble", p, p * v, m), simulated("1f1b", p, p * v, m)
        assert ours.bubble < theirs.bubble
        assert max(ours.peak_activations) <= max(theirs.peak_activations)


@pytest.mark.parametrize("p", RANKS)
def test_activations_of_1f1b(p: int) -> None:
    for m in MICROBATCHES:
        simulation = simulated("1f1b", p, p, m)
        assert simulation.peak_activations == tuple(min(m, p - r) for r in range(p))
        assert simulation.peak_activations_of_stages == simulation.peak_activations


@pytest.mark.parametrize(("p", "v"), SIZES)
def test_activations_of_the_others(p: int, v: int) -> None:
    for m in MICROBATCHES:
        group = len(microbatch_groups(p, m)[0])
        assert group < 2 * p
        assert simulated("gpipe", p, p * v, m).peak_activations == (v * m,) * p
        zero_bubble = simulated("zero_bubble", p, p * v, m).peak_activations
        assert max(zero_bubble) <= min(v * m, (v - 1) * group + p)
        if v > 1:
            peaks = simulated("interleaved", p, p * v, m).peak_activations
            most = [2 * (p - 1 - r) + (v - 1) * group + 1 for r in range(p)]
            assert peaks == tuple(min(v * m, limit) for limit in most)


def test_activations_as_numbers() -> None:
    assert simulated("1f1b", 4, 4, 8).peak_activations == (4, 3, 2, 1)
    assert simulated("gpipe", 4, 4, 8).peak_activations == (8, 8, 8, 8)
    assert simulated("zero_bubble", 4, 4, 8).peak_activations == (4, 4, 4, 4)
    interleaved = simulated("interleaved", 4, 8, 8)
    assert interleaved.peak_activations == (11, 9, 7, 5)
    assert interleaved.peak_activations_of_stages == (8, 8, 7, 5, 4, 4, 3, 1)


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize(("p", "v"), SIZES)
def test_two_receive_buffers_are_enough(name: str, p: int, v: int) -> None:
    """One in use and one being filled, unless a link's order asks for one more."""
    for m in MICROBATCHES:
        assert max(simulated(name, p, p * v, m).peak_receive_buffers) <= (2 if v == 1 else 3)


def test_1f1b_to_the_last_instruction() -> None:
    schedule = build_schedule("1f1b", 2, 2, 2)
    assert schedule.ranks == (
        (
            Forward(0, 0),
            SendActivation(0, 0),
            RecvGradient(0, 0),
            Forward(0, 1),
            SendActivation(0, 1),
            RecvGradient(0, 1),
            Backward(0, 0),
            Backward(0, 1),
        ),
        (
            RecvActivation(1, 0),
            Forward(1, 0),
            RecvActivation(1, 1),
            Backward(1, 0),
            SendGradient(1, 0),
            Forward(1, 1),
            Backward(1, 1),
            SendGradient(1, 1),
        ),
    )


def test_gpipe_goes_through_chunks_breadth_first() -> None:
    (program,) = build_schedule("gpipe", 1, 2, 2).ranks
    forwards = (Forward(0, 0), Forward(0, 1), Forward(1, 0), Forward(1, 1))
    backwards = (Backward(1, 0), Backward(1, 1), Backward(0, 0), Backward(0, 1))
    assert program == forwards + backwards


def test_zero_bubble_sends_before_weight_gradients() -> None:
    program = build_schedule("zero_bubble", 2, 2, 2).ranks[1]
    computes = [i for i in program if not isinstance(i, Receive)]
    assert computes == [
        Forward(1, 0),
        BackwardInput(1, 0),
        SendGradient(1, 0),
        Forward(1, 1),
        BackwardInput(1, 1),
        SendGradient(1, 1),
        BackwardWeight(1, 0),
        BackwardWeight(1, 1),
    ]


def test_groups_are_even_and_none_is_too_small() -> None:
    assert microbatch_groups(4, 8) == (range(4), range(4, 8))
    assert microbatch_groups(4, 11) == (range(6), range(6, 11))
    assert microbatch_groups(4, 3) == (range(3),)
    assert microbatch_groups(1, 2) == (range(1), range(1, 2))


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize(("p", "v", "m"), [(8, 4, 37), (7, 1, 100), (16, 2, 5), (12, 3, 31)])
def test_larger_ones_run_too(name: str, p: int, v: int, m: int) -> None:
    schedule = build_schedule(name, p, p * v, m)
    assert check_schedule(schedule) == ()
    assert simulate(schedule, latency=0.5).busy == (3 * v * m,) * p


@pytest.mark.parametrize(
    ("name", "sizes", "message"),
    [
        (
            "2f2b",
            (2, 2, 2),
            "no pipeline schedule `2f2b`; there are gpipe, 1f1b, interleaved, zero_bubble",
        ),
        (
            "1f1b",
            (2, 5, 2),
            "5 stages on 2 pipeline ranks: the number of stages must be a multiple of the number "
            "of ranks",
        ),
        (
            "gpipe",
            (2, 0, 2),
            "0 stages on 2 pipeline ranks: the number of stages must be a multiple of the number "
            "of ranks",
        ),
        ("gpipe", (2, 2, 0), "a schedule needs a rank and a microbatch, got 2 and 0"),
        ("gpipe", (0, 2, 1), "a schedule needs a rank and a microbatch, got 0 and 1"),
    ],
)
def test_what_makes_no_schedule(name: str, sizes: tuple[int, int, int], message: str) -> None:
    with pytest.raises(ValueError) as caught:
        build_schedule(name, *sizes)
    assert str(caught.value) == message
