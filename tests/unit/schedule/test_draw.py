"""Schedules as text, to the last character."""

from __future__ import annotations

import pytest

from giantdsl.schedule.build import SCHEDULES, build_schedule
from giantdsl.schedule.draw import draw_schedule
from giantdsl.schedule.simulate import Costs

ONE_F_ONE_B = """\
1f1b: 4 ranks, 4 stages, 8 microbatches
F forward, B backward, number: microbatch, column: 1 of time
0 F0 F1 F2 F3 .  .  .  .  .  .  B0--- F4 B1--- F5 B2--- F6 B3--- F7 B4--- .  B5--- .  B6--- .  B7---
1 .  F0 F1 F2 .  .  .  .  B0--- F3 B1--- F4 B2--- F5 B3--- F6 B4--- F7 B5--- .  B6--- .  B7--- .  .
2 .  .  F0 F1 .  .  B0--- F2 B1--- F3 B2--- F4 B3--- F5 B4--- F6 B5--- F7 B6--- .  B7--- .  .  .  .
3 .  .  .  F0 B0--- F1 B1--- F2 B2--- F3 B3--- F4 B4--- F5 B5--- F6 B6--- F7 B7--- .  .  .  .  .  .
bubble 27.3%; time 33; activations kept at most, by rank: 4 3 2 1; receive buffers: 2 2 2 1"""

ZERO_BUBBLE = """\
zero_bubble: 2 ranks, 4 stages, 2 microbatches
F forward, b backward of inputs, w backward of weights, number: microbatch, column: 1 of time, last
letter a: stages 0 to 1, b: stages 2 to 3
0 F0a F1a F0b F1b .   b0b w0b b1b w1b b0a w0a b1a w1a
1 .   F0a F1a F0b b0b F1b b1b w0b b0a w1b b1a w0a w1a"""


def test_1f1b() -> None:
    assert draw_schedule(build_schedule("1f1b", 4, 4, 8)) == ONE_F_ONE_B


def test_chunks_and_split_backward() -> None:
    drawn = draw_schedule(build_schedule("zero_bubble", 2, 4, 2)).splitlines()
    assert "\n".join(drawn[:-1]) == ZERO_BUBBLE
    assert drawn[-1].startswith("bubble 7.7%; time 13; activations kept at most, by rank: 4 4;")


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("num_stages", [4, 8])
def test_lines_are_at_most_100_wide(name: str, num_stages: int) -> None:
    drawn = draw_schedule(build_schedule(name, 4, num_stages, 8))
    assert max(map(len, drawn.splitlines())) <= 100


def test_long_ones_are_wrapped_and_cut_with_a_note() -> None:
    drawn = draw_schedule(build_schedule("gpipe", 2, 2, 30), width=60, max_blocks=3)
    heads = [line for line in drawn.splitlines() if line.startswith(("columns", "(columns"))]
    assert heads == [
        "columns 0 to 13",
        "columns 14 to 27",
        "(columns 28 to 83 are left out)",
        "columns 84 to 92",
    ]
    whole = draw_schedule(build_schedule("gpipe", 2, 2, 30), width=60, max_blocks=9)
    assert "left out" not in whole and "columns 28 to 41" in whole


def test_measured_costs() -> None:
    """A column is the shortest of them."""
    costs = Costs(forward=0.2, backward=0.5)
    assert draw_schedule(build_schedule("gpipe", 1, 1, 2), costs=costs) == (
        "gpipe: 1 rank, 1 stage, 2 microbatches\n"
        "F forward, B backward, number: microbatch, column: 0.2 of time\n"
        "0 F0 F1 B0------ B1---\n"
        "bubble 0.0%; time 1.4; activations kept at most, by rank: 2; receive buffers: 0"
    )
