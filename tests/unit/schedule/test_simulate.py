"""What the simulation finds: times, messages on their links, deadlock, and broken schedules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from giantdsl.schedule.build import build_schedule
from giantdsl.schedule.check import check_schedule
from giantdsl.schedule.communication import add_communication
from giantdsl.schedule.gpipe import gpipe
from giantdsl.schedule.instructions import (
    Backward,
    BackwardInput,
    BackwardWeight,
    Forward,
    Instruction,
    Message,
    RecvActivation,
    RecvGradient,
    Schedule,
    ScheduleError,
    SendActivation,
    SendGradient,
)
from giantdsl.schedule.simulate import Costs, Deadlock, Span, simulate


def test_both_ends_of_a_message_have_its_key() -> None:
    up = Message(1, 5, "activation")
    assert SendActivation(1, 5).message == RecvActivation(2, 5).message == up
    assert (up.source, up.target) == (1, 2)
    down = Message(1, 5, "gradient")
    assert SendGradient(2, 5).message == RecvGradient(1, 5).message == down
    assert (down.source, down.target) == (2, 1)


def test_timeline() -> None:
    """Two stages of different cost, one microbatch, messages of 5."""
    costs = (Costs(forward=2, backward=7), Costs(forward=3, backward=4))
    simulation = simulate(build_schedule("1f1b", 2, 2, 1), costs, latency=5)
    assert simulation.total == 26
    assert simulation.busy == (9, 7)
    assert simulation.bubble == pytest.approx(1 - 16 / 52, abs=1e-12)
    assert simulation.peak_receive_buffers == (1, 1)
    assert simulation.timeline == (
        (
            Span(RecvGradient(0, 0), 0, 19),
            Span(Forward(0, 0), 0, 2),
            Span(SendActivation(0, 0), 2, 7),
            Span(Backward(0, 0), 19, 26),
        ),
        (
            Span(RecvActivation(1, 0), 0, 7),
            Span(Forward(1, 0), 7, 10),
            Span(Backward(1, 0), 10, 14),
            Span(SendGradient(1, 0), 14, 19),
        ),
    )


def test_split_backward_has_costs_of_its_own() -> None:
    costs = Costs(forward=1, backward_input=10, backward_weight=100)
    assert simulate(build_schedule("zero_bubble", 1, 1, 2), costs).total == 222


def test_a_link_carries_one_message_at_a_time() -> None:
    """Forwards of no cost: the second message leaves when the first has arrived."""
    schedule = build_schedule("gpipe", 2, 2, 3, train=False)
    free = simulate(schedule, Costs(forward=0), latency=4)
    arrivals = [s.end for s in free.timeline[0] if isinstance(s.instruction, SendActivation)]
    assert arrivals == [4, 8, 12]


def test_receives_posted_ahead_hide_what_messages_take() -> None:
    """gpipe, 4 ranks, 8 microbatches: messages of 1 cost only the way there and back, 2 x 3."""
    computes = gpipe(4, 4, 8)
    late = Schedule("gpipe", 4, 8, add_communication(computes, 4, ahead=0))
    assert simulate(build_schedule("gpipe", 4, 4, 8), latency=1).total == 33 + 2 * 3
    assert simulate(late, latency=1).total == 53
    assert simulate(late).peak_receive_buffers == (1, 1, 1, 1)


def test_costs_of_the_wrong_number_of_stages() -> None:
    with pytest.raises(ValueError, match="costs of 3 stages for 2"):
        simulate(build_schedule("1f1b", 2, 2, 1), [Costs()] * 3)


def test_deadlock_names_where_each_rank_is_stuck() -> None:
    first = (Forward(0, 0), Backward(0, 0), Forward(0, 1), Backward(0, 1))
    last = (Forward(1, 0), Forward(1, 1), Backward(1, 0), Backward(1, 1))
    schedule = Schedule("mine", 2, 2, add_communication((first, last), 2))
    assert check_schedule(schedule) == ()
    with pytest.raises(Deadlock) as caught:
        simulate(schedule)
    assert caught.value.stuck == ((0, Backward(0, 0)), (1, Forward(1, 1)))
    assert str(caught.value) == (
        "deadlock:\n"
        "rank 0 waits at Backward(stage=0, microbatch=0) for "
        "Message(edge=0, microbatch=0, direction='gradient')\n"
        "rank 1 waits at Forward(stage=1, microbatch=1) for "
        "Message(edge=0, microbatch=1, direction='activation')"
    )


def test_a_small_last_group_would_deadlock() -> None:
    """Why microbatches go in even groups: 4 and 1 of them with 3 chunks on 4 ranks do not run."""
    from giantdsl.schedule.order import alternate, backward_order, forward_order

    groups = (range(4), range(4, 5))
    computes = tuple(
        tuple(
            alternate(
                forward_order(rank, 4, 12, groups),
                backward_order(rank, 4, 12, groups),
                num_warmup=2 * (3 - rank) + 2 * 4,
            )
        )
        for rank in range(4)
    )
    with pytest.raises(Deadlock):
        simulate(Schedule("uneven", 12, 5, add_communication(computes, 12)))
    simulate(build_schedule("interleaved", 4, 12, 5))


Edit = Callable[[list[Instruction]], None]


def drop(instruction: Instruction) -> Edit:
    return lambda program: program.remove(instruction)


def swap(a: Instruction, b: Instruction) -> Edit:
    def edit(program: list[Instruction]) -> None:
        i, j = program.index(a), program.index(b)
        program[i], program[j] = b, a

    return edit


@pytest.mark.parametrize(
    ("name", "rank", "edit", "problem"),
    [
        ("1f1b", 0, drop(Forward(0, 1)), "Forward(stage=0, microbatch=1) is there 0 times"),
        ("1f1b", 1, drop(Backward(1, 0)), "there are 0, 0, 0"),
        ("zero_bubble", 1, drop(BackwardWeight(1, 0)), "there are 0, 1, 0"),
        ("1f1b", 1, lambda p: p.append(Forward(1, 7)), "of no stage or no microbatch"),
        ("1f1b", 1, lambda p: p.append(Forward(1, 0)), "is there 2 times"),
        ("1f1b", 0, lambda p: p.append(Forward(1, 0)), "belongs to rank 1"),
        (
            "1f1b",
            1,
            swap(Forward(1, 0), Backward(1, 0)),
            "rank 1: Backward(stage=1, microbatch=0) comes before Forward(stage=1, microbatch=0)",
        ),
        (
            "zero_bubble",
            1,
            swap(BackwardInput(1, 0), BackwardWeight(1, 0)),
            "comes before BackwardInput(stage=1, microbatch=0)",
        ),
        (
            "1f1b",
            1,
            swap(RecvActivation(1, 0), Forward(1, 0)),
            "comes before Message(edge=0, microbatch=0, direction='activation')",
        ),
        (
            "1f1b",
            0,
            swap(Forward(0, 0), SendActivation(0, 0)),
            "SendActivation(stage=0, microbatch=0) comes before its values are made",
        ),
        ("1f1b", 0, drop(SendActivation(0, 1)), "is received and not sent"),
        ("1f1b", 0, drop(RecvGradient(0, 1)), "is sent and not received"),
        (
            "gpipe",
            0,
            swap(RecvGradient(0, 0), RecvGradient(0, 1)),
            "rank 1 to rank 0: messages are received in another order than they are sent in",
        ),
    ],
)
def test_broken_schedules(name: str, rank: int, edit: Edit, problem: str) -> None:
    good = build_schedule(name, 2, 2, 3)
    programs = [list(program) for program in good.ranks]
    edit(programs[rank])
    broken = replace(good, ranks=tuple(map(tuple, programs)))
    assert any(problem in line for line in check_schedule(broken)), check_schedule(broken)
    with pytest.raises(ScheduleError):
        simulate(broken)


def test_a_message_sent_twice() -> None:
    good = build_schedule("1f1b", 2, 2, 1)
    ranks = ((*good.ranks[0], SendActivation(0, 0)), (*good.ranks[1], RecvActivation(1, 0)))
    assert check_schedule(replace(good, ranks=ranks)) == (
        "rank 0 to rank 1: Message(edge=0, microbatch=0, direction='activation') is sent more "
        "than once",
    )


def test_one_rank_hands_over_in_order() -> None:
    """No messages on one rank; a stage before the one it needs is still an error."""
    good = build_schedule("gpipe", 1, 2, 1)
    assert good.ranks == ((Forward(0, 0), Forward(1, 0), Backward(1, 0), Backward(0, 0)),)
    broken = replace(good, ranks=((Forward(1, 0), Forward(0, 0), Backward(1, 0), Backward(0, 0)),))
    assert check_schedule(broken) == (
        "rank 0: Forward(stage=1, microbatch=0) comes before "
        "Message(edge=0, microbatch=0, direction='activation')",
    )
