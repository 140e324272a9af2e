"""Links, layouts and what is known of sends, without a process."""

from __future__ import annotations

import itertools

import pytest
import torch

from giantdsl.errors import InternalError
from giantdsl.mesh.mesh import Mesh
from giantdsl.plan import InputInfo, ValueInfo
from giantdsl.runtime.axes import Axes, Split
from giantdsl.runtime.completion import known_complete, send_window
from giantdsl.runtime.groups import Groups
from giantdsl.runtime.links import lane_of, links_of
from giantdsl.runtime.messages import PACKED_BYTES, Item, Layout
from giantdsl.runtime.microbatch import Extent, extent_of, local_shape
from giantdsl.schedule.build import SCHEDULES, build_schedule
from giantdsl.schedule.instructions import Compute, Message, Receive, Schedule, incoming, rank_of

SIZES = list(itertools.product((2, 3, 4, 5), (1, 2, 3), (1, 3, 8)))


@pytest.mark.parametrize("num_ranks", range(2, 9))
def test_a_rank_has_one_link_in_a_lane(num_ranks: int) -> None:
    for num_stages in (num_ranks, 2 * num_ranks):
        links = links_of(num_ranks, num_stages)
        for rank in range(num_ranks):
            lanes = [lane_of(link, num_ranks) for link in links if rank in link]
            assert len(lanes) == len(set(lanes))


def test_links_are_both_ways_between_neighbours() -> None:
    assert links_of(1, 4) == []
    assert links_of(3, 3) == [(0, 1), (1, 0), (1, 2), (2, 1)]
    assert links_of(3, 6) == [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)]


# ---- sends ---------------------------------------------------------------------------------


def sends_of(schedule: Schedule, rank: int) -> list[Message]:
    return [
        i.message for i in schedule.ranks[rank] if not isinstance(i, Compute) and not is_receive(i)
    ]


def is_receive(instruction: object) -> bool:
    return isinstance(instruction, Receive)


@pytest.mark.parametrize("name", SCHEDULES)
def test_what_is_known_complete_was_consumed_before_the_telling_message_was_sent(name: str) -> None:
    for num_ranks, chunks, count in SIZES:
        schedule = build_schedule(name, num_ranks, num_ranks * chunks, count)
        for rank in range(num_ranks):
            told = known_complete(schedule, rank)
            named = [m for messages in told.values() for m in messages]
            assert len(named) == len(set(named))
            assert set(named) <= set(sends_of(schedule, rank))
            for telling, messages in told.items():
                program = schedule.ranks[rank_of(telling.source, num_ranks)]
                until = [getattr(i, "message", None) for i in program].index(telling)
                used = [
                    incoming(i, schedule.num_stages)
                    for i in program[:until]
                    if isinstance(i, Compute)
                ]
                assert set(messages) <= set(used)


def test_1f1b_knows_of_all_activations_and_of_most_gradients() -> None:
    schedule = build_schedule("1f1b", 4, 4, 8)
    for rank in range(4):
        named = {m for messages in known_complete(schedule, rank).values() for m in messages}
        left = [m for m in sends_of(schedule, rank) if m not in named]
        assert all(m.direction == "gradient" for m in left)
        assert len(left) <= 4


def test_evaluation_keeps_few_sends() -> None:
    for num_ranks, chunks, count in SIZES:
        schedule = build_schedule("1f1b", num_ranks, num_ranks * chunks, count, train=False)
        assert send_window(schedule) <= 2 * num_ranks
    assert send_window(build_schedule("1f1b", 4, 4, 64, train=False)) == 2


# ---- shapes and layouts --------------------------------------------------------------------


def test_small_values_share_a_message_and_large_ones_do_not() -> None:
    large = Item("large", torch.float32, (PACKED_BYTES // 4 + 1,))
    items = [
        Item("flags", torch.bool, (3,)),
        Item("x", torch.bfloat16, (3, 5)),
        large,
        Item("ids", torch.int64, (3,)),
        Item("nothing", torch.float32, (0, 4)),
    ]
    layout = Layout.of(items)
    assert [[item.name for item in parcel] for parcel in layout.parcels] == [
        ["large"],
        ["ids", "x", "flags"],
    ]
    assert [item.name for item in layout.items] == ["flags", "x", "large", "ids", "nothing"]


INPUTS = (
    InputInfo("tokens", ("b", "s"), (None, 16), "v", 5, (1,), False),
    InputInfo("far", ("t", "b"), (12, None), "float", None, (0,), False),
    InputInfo("labels", ("b", "s"), (None, 16), "v", 5, (1,), True),
)


def test_sizes_come_from_the_inputs_that_are_there() -> None:
    part = {"tokens": torch.zeros(3, 9), "far": torch.zeros(7, 3)}
    assert extent_of(part, INPUTS) == Extent(3, (("s", 9), ("t", 7)))
    assert extent_of({}, INPUTS) == Extent(None, ())


def test_a_value_has_this_ranks_part_of_every_axis() -> None:
    groups = Groups.single()
    groups.mesh = Mesh.of({"cp": 2, "tp": 2})
    axes = Axes(groups, s=Split(16, "cp", sequence=True), heads=Split(6, "tp"))
    value = ValueInfo(
        "x",
        ("b", "heads", "s", "s'", "t", "d"),
        (None, 6, 16, 16, 12, 4),
        (("dp", "ep"), ("tp",), ("cp",), (), (), ("ep",)),
        "float",
        True,
    )
    axes.resize(s=9)
    axes._slices["s_cp"].size = 5
    axes._slices["heads_tp"].size = 3
    extent = Extent(2, (("s", 9), ("t", 7)))
    assert local_shape(value, extent, axes) == (2, 3, 5, 9, 7, 4)
    with pytest.raises(InternalError, match="`x` has a batch axis, but no input has"):
        local_shape(value, Extent(None, ()), axes)
