"""Values that must be equal on all ranks."""

from __future__ import annotations

from giantdsl.errors import SettingsError
from giantdsl.mesh.mesh import Mesh
from giantdsl.runtime.groups import Groups
from giantdsl.testing.ranks import RankPool
from giantdsl.train.launch import check_same


def compare(rank: int, world: int, values: list[str]) -> str:
    group = Groups.make(Mesh.of({"tp": world}), rank).tp
    try:
        check_same(group, "the plan", values[rank])
    except SettingsError as error:
        return str(error)
    return ""


def test_equal_values_pass_and_a_difference_names_the_ranks_on_all(ranks: RankPool) -> None:
    assert ranks.run(compare, ["a", "a", "a"], ranks=3) == ["", "", ""]
    message = "the plan differs between ranks: a on ranks 0, 2, b on rank 1"
    assert ranks.run(compare, ["a", "b", "a"], ranks=3) == [message] * 3


def test_long_values_are_compared_whole_and_shown_short(ranks: RankPool) -> None:
    long = "x" * 5000
    first, second = ranks.run(compare, [long + "1", long + "2"], ranks=2)
    assert first == second
    assert "differs between ranks: xxx" in first and len(first) < 300
