"""Cells, limits and rows by hand; a backend that fails costs its own rows only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from giantdsl.bench.cells import Cell, Shape, parse_choices, parse_size, size_text, time_text
from giantdsl.bench.limits import LinkRates, copied_bytes, limit_s, link_bytes
from giantdsl.bench.local import LocalSpawner
from giantdsl.bench.protocol import Times
from giantdsl.bench.rows import Row, rows_of_cell
from giantdsl.bench.runner import Plan, Runner
from giantdsl.bench.session import BackendFailed, BenchRanks
from giantdsl.bench.table import markdown_table, plain_table
from giantdsl.errors import SettingsError

MIB = 1 << 20


def test_sizes_shapes_and_choices_are_read() -> None:
    assert [parse_size(text) for text in ("1k", "64KiB", "4m", "12")] == [1024, 65536, 4 * MIB, 12]
    assert [size_text(n) for n in (12, 1024, 1536, 4 * MIB)] == ["12 B", "1 KiB", "1536 B", "4 MiB"]
    assert [time_text(s) for s in (2e-6, 0.0123, 1.5)] == ["2 us", "12.3 ms", "1500 ms"]
    shape = Shape.parse("2x4")
    assert (shape.hosts, shape.local, shape.ranks, str(shape)) == (2, 4, 8, "2x4")
    assert parse_choices("b, a,b", ("a", "b"), "letter") == ["b", "a"]


@pytest.mark.parametrize("text", ["", "k", "0", "1.5m", "-1k", "1t"])
def test_a_wrong_size_is_refused(text: str) -> None:
    with pytest.raises(SettingsError):
        parse_size(text)


@pytest.mark.parametrize("text", ["", "2", "0x2", "2x0", "2x", "axb"])
def test_a_wrong_shape_is_refused(text: str) -> None:
    with pytest.raises(SettingsError):
        Shape.parse(text)


def test_buffers_divide_by_the_ranks() -> None:
    assert Cell("all_reduce", 1024).num_items(8) == 256
    assert Cell("all_reduce", 1024).num_items(6) == 258
    assert Cell("all_reduce", 4).num_items(8) == 8


def test_what_must_cross_a_link_and_be_copied() -> None:
    shape = Shape(4, 2)
    link = {op: link_bytes(Cell(op, MIB), shape) / MIB for op in ("all_reduce", "broadcast")}
    assert link == {"all_reduce": 1.5, "broadcast": 1}
    assert link_bytes(Cell("reduce_scatter_tensor", MIB), shape) == 0.75 * MIB
    assert link_bytes(Cell("all_gather_into_tensor", MIB), shape) == 0.75 * MIB
    assert link_bytes(Cell("all_to_all_single", MIB), shape) == 1.5 * MIB
    assert link_bytes(Cell("broadcast", MIB), Shape(1, 4)) == 0
    assert copied_bytes(Cell("all_reduce", MIB), Shape(1, 4)) == 6 * MIB
    assert copied_bytes(Cell("broadcast", MIB), Shape(1, 4)) == 3 * MIB


def test_the_limit_is_the_larger_of_link_and_memory() -> None:
    rates = LinkRates(one_way=4e6, both_ways=2e6)
    cell = Cell("all_reduce", 1_000_000)
    assert limit_s(cell, Shape(2, 2), rates, 1e9) == pytest.approx(0.5)
    assert limit_s(cell, Shape(2, 2), rates, 1e6) == pytest.approx(2.0)
    assert limit_s(Cell("broadcast", 1_000_000), Shape(2, 1), rates, 1e9) == pytest.approx(0.25)
    assert limit_s(cell, Shape(1, 2), None, 1e9) == pytest.approx(0.002)


def answers() -> list[dict[str, Times]]:
    """Two ranks; the slowest of each round counts."""
    return [
        {
            "gloo": Times(True, 2, [0.010, 0.020, 0.030], wire_bytes=1.5 * MIB),
            "giant": Times(True, 4, [0.005, 0.005, 0.010], wire_bytes=MIB),
        },
        {
            "gloo": Times(True, 2, [0.020, 0.010, 0.010], wire_bytes=MIB),
            "giant": Times(False, 4, [0.004, 0.010, 0.002], wire_bytes=MIB),
        },
    ]


def test_rows_are_medians_over_rounds_of_the_slowest_rank() -> None:
    cell = Cell("all_reduce", MIB)
    gloo, giant = rows_of_cell(cell, Shape(2, 1), "1gbit", answers(), limit_s=0.005)
    assert (gloo.seconds, gloo.low, gloo.high, gloo.rounds) == (0.020, 0.020, 0.030, 3)
    assert (giant.seconds, giant.low, giant.high, giant.calls) == (0.010, 0.005, 0.010, 4)
    assert (gloo.speed, giant.speed, giant.speed_low, giant.speed_high) == (1, 3, 2, 4)
    assert (gloo.limit_ratio, giant.limit_ratio) == (0.25, 0.5)
    assert (gloo.wire_factor, giant.wire_factor) == (1.5, 1.0)
    assert gloo.is_good and not giant.is_good and not giant.is_correct
    small = rows_of_cell(Cell("all_reduce", 1024), Shape(2, 1), "1gbit", answers())[0]
    assert small.wire_factor is None and small.limit_ratio is None


def test_tables_show_what_there_is() -> None:
    rows = rows_of_cell(Cell("all_reduce", MIB), Shape(2, 1), "none", answers())
    failed = Row(
        shape="2x1", link="none", operation="all_reduce", num_bytes=MIB, backend="giant",
        error="rank 1: it broke",
    )  # fmt: skip
    text = plain_table([*rows, failed]).splitlines()
    assert "of limit" not in text[0] and "wire" in text[0]
    assert "20.0 ms" in text[1] and "1.00x" in text[1]
    assert "10.0 ms WRONG" in text[2] and "3.00x" in text[2]
    assert text[3].split()[3:] == ["giant", "FAILED", "rank", "1:", "it", "broke"]
    assert "| all_reduce | 1 MiB | giant | FAILED | rank 1: it broke |" in markdown_table([failed])


class FakeRanks:
    """Ranks on which `giant` breaks at one operation."""

    def __init__(self, log: list[str]) -> None:
        self.log = log

    def measure(
        self, cell: Cell, backends: Sequence[str], rounds: int, budget_s: float
    ) -> list[dict[str, Times]]:
        self.log.append(f"{cell.operation} {' '.join(backends)}")
        if "giant" in backends and cell.operation == "broadcast":
            raise BackendFailed("giant", "it broke")
        return [{name: Times(True, 1, [0.01] * rounds) for name in backends}]


def test_a_backend_that_failed_is_left_out_and_the_ranks_start_anew() -> None:
    log: list[str] = []

    def connect(backends: Sequence[str]) -> FakeRanks:
        log.append("start")
        return FakeRanks(log)

    cells = [Cell(op, n) for op in ("broadcast", "all_reduce") for n in (8, 16)]
    plan = Plan(Shape(1, 2), "none", cells, ("gloo", "giant"), 2, 0.1, lambda ranks, cell: None)
    rows = list(Runner(connect).run(plan))
    assert log == [
        "start", "broadcast gloo giant", "start", "broadcast gloo", "broadcast gloo",
        "all_reduce gloo giant", "all_reduce gloo giant",
    ]  # fmt: skip
    assert [[row.backend for row in each] for each in rows] == [
        ["gloo", "giant"], ["gloo"], ["gloo", "giant"], ["gloo", "giant"],
    ]  # fmt: skip
    assert rows[0][1].error == "it broke" and rows[0][0].error is None


@pytest.fixture
def started() -> Iterator[LocalSpawner]:
    spawner = LocalSpawner(Shape(1, 2))
    yield spawner
    spawner.stop()


def test_a_rank_that_dies_is_an_error_that_names_it(started: LocalSpawner) -> None:
    with BenchRanks(Shape(1, 2), ["gloo"], started) as ranks:
        assert ranks.copy_rate(4096, cores=2, tries=1) > 0
        started._processes[1].kill()
        with pytest.raises(BackendFailed, match="rank 1 died"):
            ranks.measure(Cell("all_reduce", 1024), ["gloo"], 1, 0.01)
        assert started._processes == []


def test_a_backend_that_does_not_exist_is_named(started: LocalSpawner) -> None:
    with pytest.raises(BackendFailed, match="no_such"):
        BenchRanks(Shape(1, 2), ["no_such"], started)
    assert started._processes == []
