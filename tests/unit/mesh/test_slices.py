"""Where parts of an axis begin and end."""

from __future__ import annotations

import pytest

from giantdsl.mesh.slices import cut_runs, zigzag_runs


def test_zigzag_pairs_the_front_with_the_back() -> None:
    assert zigzag_runs(8, 2) == (((0, 2), (6, 8)), ((2, 4), (4, 6)))
    assert zigzag_runs(7, 2) == (((0, 2), (6, 7)), ((2, 4), (4, 6)))


@pytest.mark.parametrize("length", [0, 1, 5, 12])
@pytest.mark.parametrize("parts", [1, 2, 3])
def test_zigzag_has_every_position_once(length: int, parts: int) -> None:
    found = [i for runs in zigzag_runs(length, parts) for run in runs for i in range(*run)]
    assert sorted(found) == list(range(length))


def test_runs_are_cut_by_elements() -> None:
    runs = ((2, 4), (12, 15))
    assert cut_runs(runs, 0, 5) == runs
    assert cut_runs(runs, 1, 3) == ((3, 4), (12, 13))
    assert cut_runs(runs, 3, 3) == ()
