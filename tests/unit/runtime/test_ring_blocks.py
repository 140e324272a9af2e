"""Which blocks of queries and keys a ring computes."""

from __future__ import annotations

import itertools

import pytest

from giantdsl.mesh.slices import Bounds, even_bounds, zigzag_runs
from giantdsl.runtime.ops.ring_blocks import Block, Sight, blocks

ALL, DIAGONAL, MASKED = Sight.ALL, Sight.DIAGONAL, Sight.MASKED


def test_in_zigzag_a_rank_sees_half_of_every_other_ones_keys() -> None:
    """16 positions, 4 ranks: rank 1 has 2..4 and 12..14."""
    runs = zigzag_runs(16, 4)
    assert runs[1] == ((2, 4), (12, 14))
    own = blocks(runs[1], runs[1], causal=True, window=None)
    assert own == [
        Block((0, 2), (0, 2), DIAGONAL),
        Block((2, 4), (0, 2), ALL),
        Block((2, 4), (2, 4), DIAGONAL),
    ]
    assert blocks(runs[1], runs[0], causal=True, window=None) == [Block((0, 4), (0, 2), ALL)]
    assert blocks(runs[1], runs[3], causal=True, window=None) == [Block((2, 4), (0, 4), ALL)]


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_in_zigzag_all_ranks_have_the_same_work(ranks: int) -> None:
    runs = zigzag_runs(24 * ranks, ranks)
    assert len({work(runs, rank, ranks) for rank in range(ranks)}) == 1
    plain = tuple((run,) for run in even_bounds(24 * ranks, ranks))
    assert len({work(plain, rank, ranks) for rank in range(ranks)}) == ranks


def work(runs: tuple[Bounds, ...], rank: int, ranks: int) -> int:
    made = [
        b
        for other in range(ranks)
        for b in blocks(runs[rank], runs[other], causal=True, window=None)
    ]
    return sum((b.queries[1] - b.queries[0]) * (b.keys[1] - b.keys[0]) for b in made)


@pytest.mark.parametrize(
    ("length", "ranks", "causal", "window"),
    [*itertools.product([1, 5, 16], [1, 2, 3], [True, False], [None, 1, 3])],
)
def test_every_pair_that_is_seen_is_in_one_block(
    length: int, ranks: int, causal: bool, window: int | None
) -> None:
    runs = zigzag_runs(length, ranks)
    found: list[tuple[int, int]] = []
    for query, key in itertools.product(range(ranks), range(ranks)):
        mine = [i for run in runs[query] for i in range(*run)]
        other = [i for run in runs[key] for i in range(*run)]
        for block in blocks(runs[query], runs[key], causal=causal, window=window):
            pairs = itertools.product(mine[slice(*block.queries)], other[slice(*block.keys)])
            found += [pair for pair in pairs if is_computed(block, *pair, causal, window)]
    wanted = [p for p in itertools.product(range(length), repeat=2) if seen(*p, causal, window)]
    assert sorted(found) == wanted


def is_computed(block: Block, s: int, t: int, causal: bool, window: int | None) -> bool:
    if block.sight is MASKED:
        return seen(s, t, causal, window)
    return block.sight is ALL or t <= s


def seen(s: int, t: int, causal: bool, window: int | None) -> bool:
    return (t <= s or not causal) and (window is None or t > s - window)
