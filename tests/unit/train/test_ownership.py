"""Which rank holds what, how gradients are packed, what is refused. No process is started."""

from __future__ import annotations

import pytest

from giantdsl.errors import SettingsError
from giantdsl.mesh.mesh import Mesh
from giantdsl.plan import AxisSplit, ParameterInfo, StoredParameter
from giantdsl.train.parallel.buckets import ALIGN, Storage
from giantdsl.train.parallel.legality import check_storage
from giantdsl.train.parallel.ownership import (
    Ownership,
    counted_elements,
    group_axes,
    local_shape,
)
from tests.distributed.sliced_model import ADAFACTOR, Layout, parallel_plan


def stored(
    shape: tuple[int, ...],
    view: tuple[int, ...],
    splits: tuple[tuple[int, str], ...] = (),
    sum_over: tuple[str, ...] = ("dp", "ep"),
    stages: tuple[int, ...] = (0,),
) -> StoredParameter:
    return StoredParameter(
        ParameterInfo("w", shape, 1.0, True, None), view, splits, sum_over, stages
    )


SPLITS = {
    "heads": AxisSplit("heads", ("tp",), 6, 6, False),
    "ff": AxisSplit("ff", ("tp",), 7, 8, False),
    "experts": AxisSplit("experts", ("ep",), 4, 4, False),
    "wide": AxisSplit("wide", ("ep", "tp"), 10, 12, False),
}


def ownership(**sizes: int) -> Ownership:
    return Ownership(Mesh.of(sizes), SPLITS)


def test_other_ranks_hold_the_same_elements_where_nothing_divides_them() -> None:
    all_axes = ownership(pp=2, dp=2, cp=2, ep=2, tp=2)
    assert all_axes.replica_axes(stored((8,), (8,))) == ("dp", "cp", "ep", "tp")
    assert all_axes.replica_axes(stored((7,), (7,), ((0, "ff"),))) == ("dp", "cp", "ep")
    experts = stored((4, 7), (4, 7), ((0, "experts"), (1, "ff")), ("dp",))
    assert all_axes.replica_axes(experts) == ("dp", "cp")
    tied = stored((8,), (8,), stages=(0, 3))
    assert all_axes.replica_axes(tied) == ("pp", "dp", "cp", "ep", "tp")
    both_here = stored((8,), (8,), stages=(0, 2))
    assert all_axes.replica_axes(both_here) == ("dp", "cp", "ep", "tp")


def test_an_axis_is_divided_as_the_stages_divide_it() -> None:
    two = ownership(tp=2)
    assert two.bounds(SPLITS["ff"], {"tp": 0}) == (0, 4)
    assert two.bounds(SPLITS["ff"], {"tp": 1}) == (4, 7)
    four = ownership(ep=2, tp=3)
    parts = [four.bounds(SPLITS["wide"], {"ep": e, "tp": t}) for e in range(2) for t in range(3)]
    assert parts == [(0, 2), (2, 4), (4, 6), (6, 8), (8, 10), (10, 10)]


def test_axes_make_up_dimensions() -> None:
    assert group_axes((768, 768), (12, 64, 768)) == ((0, 1), (2,))
    assert group_axes((1, 6), (1, 2, 3)) == ((0,), (1, 2))
    assert group_axes((6, 1), (2, 3, 1)) == ((0, 1), (2,))
    assert group_axes((), ()) == ()
    weight = stored((12, 5), (6, 2, 5), ((0, "heads"),))
    at = ownership(tp=2).mesh.coordinate(1)
    assert local_shape(weight, ownership(tp=2).box(weight, at)) == (6, 5)


@pytest.mark.parametrize("sizes", [{}, {"dp": 2}, {"tp": 2, "cp": 2}, {"pp": 2, "tp": 2, "ep": 2}])
def test_every_element_counts_once(sizes: dict[str, int]) -> None:
    over = ownership(**sizes)
    parameters = [
        stored((12, 5), (6, 2, 5), ((0, "heads"),)),
        stored((7,), (7,), ((0, "ff"),)),
        stored((4, 7), (4, 7), ((0, "experts"), (1, "ff")), ("dp",)),
        stored((9,), (9,), stages=(0, 1) if sizes.get("pp") == 2 else (0,)),
    ]
    counts = [counted_elements(over, parameters, rank) for rank in range(over.mesh.size)]
    assert sum(counts) == 60 + 7 + 28 + 9


def test_buckets_hold_the_same_names_on_ranks_with_smaller_slices() -> None:
    plan = parallel_plan(Layout(dp=2, tp=2))
    storage = Storage.of(plan, precision="float32", bucket_bytes=2400)
    first, second = (storage.buckets(storage.ownership.mesh.coordinate(r)) for r in (0, 1))
    assert [b.names for b in first] == [b.names for b in second]
    assert [b.sizes for b in first] != [b.sizes for b in second]
    assert len(first) > 2


@pytest.mark.parametrize("dp", [2, 3])
def test_owners_divide_a_parameter_without_gap_or_overlap(dp: int) -> None:
    plan = parallel_plan(Layout(dp=dp, tp=2, zero=1))
    storage = Storage.of(plan, precision="float32", bucket_bytes=4096)
    for parameter in plan.parameters:
        for tp in range(2):
            sharing = storage.sum_axes(parameter)
            ranks = storage.ownership.mesh.group(tp, *sharing)
            pieces = [storage.piece(parameter, rank) for rank in ranks]
            spans = [p.span for p in pieces if p is not None and p.size]
            assert all(start % ALIGN == 0 for start, _ in spans)
            assert [start for start, _ in spans] == [0, *(stop for _, stop in spans[:-1])]
            held = storage.held(parameter, storage.ownership.mesh.coordinate(tp))
            assert spans[-1][1] == held.size


@pytest.mark.parametrize(
    ("layout", "optimizer", "message"),
    [
        (Layout(dp=2, zero=1), ADAFACTOR.name, "`train.optimizer = adafactor` does not go with"),
        (Layout(dp=2, pp=2, zero=3), "adamw", "`parallel.zero = 3` does not go with `parallel.pp"),
        (Layout(dp=2, zero=4), "adamw", "`parallel.zero` is 4"),
    ],
)
def test_combinations_that_would_be_wrong_are_refused(
    layout: Layout, optimizer: str, message: str
) -> None:
    with pytest.raises(SettingsError, match=message):
        check_storage(parallel_plan(layout), optimizer)
