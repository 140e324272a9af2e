"""Contiguous cuts: the heaviest stage is as light as it can be."""

from __future__ import annotations

import itertools
import time
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from giantdsl.passes.partition_stages import partition_stages


def loads(weights: list[float], counts: tuple[int, ...]) -> list[float]:
    ends = list(itertools.accumulate(counts))
    return [sum(weights[end - n : end]) for n, end in zip(counts, ends, strict=True)]


def test_thirty_equal_layers_on_four_stages() -> None:
    counts = partition_stages([1] * 30, 4)
    assert sum(counts) == 30
    assert max(counts) == 8
    assert sorted(counts) == [7, 7, 8, 8]


def test_five_on_four() -> None:
    assert sorted(partition_stages([1] * 5, 4)) == [1, 1, 1, 2]


def test_thirty_eight_on_eight() -> None:
    assert Counter(partition_stages([1] * 38, 8)) == {5: 6, 4: 2}


def test_forty_two_on_sixteen() -> None:
    assert Counter(partition_stages([1] * 42, 16)) == {3: 10, 2: 6}


def test_earlier_stages_are_the_shorter_ones() -> None:
    assert partition_stages([1] * 5, 4) == (1, 1, 1, 2)
    assert partition_stages([1] * 30, 4) == (7, 7, 8, 8)


def test_heavy_ends_get_fewer_layers() -> None:
    weights = [4.0, *[1.0] * 8, 6.0]
    assert partition_stages(weights, 3) == (3, 6, 1)


@given(
    weights=st.lists(st.integers(0, 9), min_size=1, max_size=8),
    data=st.data(),
)
@settings(max_examples=150, deadline=None)
def test_no_cut_is_better(weights: list[int], data: st.DataObject) -> None:
    num_stages = data.draw(st.integers(1, len(weights)))
    counts = partition_stages(weights, num_stages)
    assert len(counts) == num_stages
    assert sum(counts) == len(weights)
    assert min(counts) >= 1

    def cost(some: tuple[int, ...]) -> tuple[float, float]:
        each = loads(list(weights), some)
        return max(each), sum(load * load for load in each)

    every = (
        tuple(b - a for a, b in itertools.pairwise((0, *cuts, len(weights))))
        for cuts in itertools.combinations(range(1, len(weights)), num_stages - 1)
    )
    assert cost(counts) == min(cost(some) for some in every)


def test_a_thousand_layers_are_cut_in_time() -> None:
    start = time.perf_counter()
    counts = partition_stages([1.0 + (i % 7) / 10 for i in range(1000)], 64)
    assert sum(counts) == 1000
    assert time.perf_counter() - start < 5.0


@pytest.mark.parametrize("num_stages", [0, 4])
def test_stages_without_units_are_refused(num_stages: int) -> None:
    with pytest.raises(AssertionError):
        partition_stages([1, 1, 1], num_stages)
