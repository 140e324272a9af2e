"""Ranks, coordinates and groups of the mesh."""

from __future__ import annotations

import itertools

import pytest

from giantdsl.mesh.mesh import MESH_AXES, Mesh

SHAPES = [
    {},
    {"tp": 2},
    {"pp": 3, "tp": 2},
    {"dp": 2, "pp": 2, "tp": 2},
    {"pp": 2, "dp": 3, "cp": 2, "ep": 2, "tp": 4},
]


def test_default_order_is_that_of_the_language() -> None:
    assert MESH_AXES == ("pp", "dp", "cp", "ep", "tp")


@pytest.mark.parametrize("sizes", SHAPES)
def test_rank_and_coordinate_are_inverse(sizes: dict[str, int]) -> None:
    mesh = Mesh.of(sizes)
    coordinates = [mesh.coordinate(rank) for rank in range(mesh.size)]
    assert [mesh.rank(c) for c in coordinates] == list(range(mesh.size))
    assert len({tuple(c.items()) for c in coordinates}) == mesh.size


def test_last_axis_varies_fastest() -> None:
    mesh = Mesh.of({"pp": 2, "dp": 2, "tp": 2})
    assert mesh.coordinate(0) == {"pp": 0, "dp": 0, "cp": 0, "ep": 0, "tp": 0}
    assert mesh.coordinate(1)["tp"] == 1
    assert mesh.coordinate(2)["dp"] == 1
    assert mesh.coordinate(5) == {"pp": 1, "dp": 0, "cp": 0, "ep": 0, "tp": 1}
    assert (mesh.stride("tp"), mesh.stride("dp"), mesh.stride("pp")) == (1, 2, 4)


def test_order_moves_an_axis_outwards() -> None:
    mesh = Mesh.of({"pp": 2, "tp": 2}, order=("tp", "pp", "dp", "cp", "ep"))
    assert mesh.coordinate(1)["pp"] == 1
    assert mesh.coordinate(2)["tp"] == 1


def test_groups_along_one_axis() -> None:
    mesh = Mesh.of({"pp": 2, "dp": 2, "tp": 2})
    assert list(mesh.groups("tp")) == [(0, 1), (2, 3), (4, 5), (6, 7)]
    assert list(mesh.groups("dp")) == [(0, 2), (1, 3), (4, 6), (5, 7)]
    assert list(mesh.groups("pp")) == [(0, 4), (1, 5), (2, 6), (3, 7)]
    assert mesh.group(6, "dp") == (4, 6)


def test_groups_along_several_axes_are_in_rank_order() -> None:
    mesh = Mesh.of({"pp": 2, "dp": 2, "tp": 2})
    assert list(mesh.groups("tp", "pp")) == [(0, 1, 4, 5), (2, 3, 6, 7)]
    assert mesh.group(3, "dp", "tp") == (0, 1, 2, 3)


@pytest.mark.parametrize("sizes", SHAPES)
def test_groups_partition_the_ranks(sizes: dict[str, int]) -> None:
    mesh = Mesh.of(sizes)
    for count in range(len(mesh.axes) + 1):
        for along in itertools.combinations(mesh.axes, count):
            groups = list(mesh.groups(*along))
            assert sorted(r for g in groups for r in g) == list(range(mesh.size))
            expected = 1
            for axis in along:
                expected *= mesh.axis_size(axis)
            assert {len(g) for g in groups} == {expected}
            for group in groups:
                assert all(mesh.group(rank, *along) == group for rank in group)


def test_neighbour_goes_around() -> None:
    mesh = Mesh.of({"pp": 3, "tp": 2})
    assert mesh.neighbour(1, "pp", 1) == 3
    assert mesh.neighbour(5, "pp", 1) == 1
    assert mesh.neighbour(0, "pp", -1) == 4


def test_split_axes() -> None:
    assert Mesh.of({"tp": 2, "dp": 4}).split_axes == ("dp", "tp")
    assert Mesh.of({}).split_axes == ()


@pytest.mark.parametrize(
    "make",
    [
        lambda: Mesh(("dp", "dp"), (1, 2)),
        lambda: Mesh(("dp",), (0,)),
        lambda: Mesh.of({"xp": 2}),
        lambda: Mesh.of({"tp": 2}).coordinate(2),
        lambda: Mesh.of({"tp": 2}).rank({"tp": 2}),
        lambda: Mesh.of({"tp": 2}).group(0, "xp"),
    ],
)
def test_misuse_is_refused(make: object) -> None:
    with pytest.raises(AssertionError):
        make()  # type: ignore[operator]
