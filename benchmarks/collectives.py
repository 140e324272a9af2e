"""Collectives of several backends side by side in one run, on an emulated cluster.

    python benchmarks/collectives.py                                    # everything: an hour or two
    python benchmarks/collectives.py --shapes 2x2 --links 1gbit --sizes 64k,1m --add   # two minutes

Ranks live for all cells of a link, and backends take turns round by round, so what disturbs the
machine disturbs all of them. It needs root. `giantdsl/bench/limits.py` defines the limits;
`--out` is JSON, the table is beside it, and `--add` keeps what other runs left there.
MPI is not among the backends: its ranks cannot be these processes, so it could not take turns.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cluster import Cluster, parse_bandwidth, why_not
from collectives_ranks import ClusterSpawner, link_rates
from collectives_report import write_report

from giantdsl.bench.cells import (
    BACKENDS,
    OPERATIONS,
    SIZES,
    Cell,
    Shape,
    parse_choices,
    parse_size,
    size_text,
)
from giantdsl.bench.limits import LinkRates, limit_s
from giantdsl.bench.rows import Row
from giantdsl.bench.runner import Plan, Runner
from giantdsl.bench.session import BackendFailed, BenchRanks
from giantdsl.bench.table import plain_table
from giantdsl.errors import SettingsError

_SHAPES = "1x2,1x4,2x2,2x4,4x2"
_LINKS = "none,1gbit,100mbit"
_OUT = Path(__file__).resolve().parent / "results" / "collectives.json"
_SLOW_LINK = 2e8
_MOST_ON_SLOW_LINK = 4 << 20
_GIANT = "giantdsl.backends.giant"


@dataclass(frozen=True, slots=True)
class Choice:
    """What the command line asks for."""

    shapes: list[Shape]
    links: list[str]
    operations: list[str]
    sizes: list[int]
    backends: list[str]
    rounds: int
    budget_s: float
    is_realtime: bool


@dataclass(slots=True)
class Found:
    rows: list[Row] = field(default_factory=list)
    links: dict[str, LinkRates] = field(default_factory=dict)


def measure_shape(choice: Choice, shape: Shape, found: Found) -> Iterator[list[Row]]:
    """The rows of each cell, on one cluster whose links change."""
    copies: dict[int, float] = {}
    with Cluster(shape.hosts, shape.local) as cluster:

        def connect(backends: Sequence[str]) -> BenchRanks:
            spawner = ClusterSpawner(cluster, is_realtime=choice.is_realtime)
            return BenchRanks(shape, backends, spawner)

        runner = Runner(connect)
        try:
            for link in choice.links if shape.hosts > 1 else ["none"]:
                # A connection keeps the segment size that its device had when it was made: under
                # another link's, the kernel cuts every packet anew and has no time for more.
                runner.close()
                cluster.set_bandwidth(link)
                rates = None
                if shape.hosts > 1:
                    rates = link_rates(cluster, is_realtime=choice.is_realtime)
                    found.links[f"{shape}@{link}"] = rates
                limit_of = _limits(shape, rates, copies)
                plan = Plan(
                    shape, link, _cells(choice, link), choice.backends, choice.rounds,
                    choice.budget_s, limit_of,
                )  # fmt: skip
                yield from runner.run(plan)
        finally:
            runner.close()


def _limits(
    shape: Shape, rates: LinkRates | None, copies: dict[int, float]
) -> Callable[[BenchRanks, Cell], float]:
    def limit_of(ranks: BenchRanks, cell: Cell) -> float:
        if cell.num_bytes not in copies:
            copies[cell.num_bytes] = ranks.copy_rate(cell.num_bytes, os.cpu_count() or 1)
        return limit_s(cell, shape, rates, copies[cell.num_bytes])

    return limit_of


def _cells(choice: Choice, link: str) -> list[Cell]:
    """Large messages on a slow link take minutes and say nothing new."""
    bits = parse_bandwidth(link)
    most = _MOST_ON_SLOW_LINK if bits is not None and bits < _SLOW_LINK else None
    sizes = [size for size in choice.sizes if most is None or size <= most]
    return [Cell(operation, size) for operation in choice.operations for size in sizes]


def _read(arguments: Sequence[str] | None) -> tuple[argparse.Namespace, Choice]:
    parser = argparse.ArgumentParser(description="Collectives side by side.")
    add = parser.add_argument
    add("--shapes", default=_SHAPES, help=f"hosts x ranks a host (default {_SHAPES})")
    add("--links", default=_LINKS, help=f"of each host, each way (default {_LINKS})")
    add("--ops", default=",".join(OPERATIONS))
    add("--sizes", default=",".join(str(size) for size in SIZES), help="default 1k to 64m, times 4")
    add("--backends", default=",".join(BACKENDS), help=f"default {','.join(BACKENDS)}")
    add("--rounds", type=int, default=5, help="turns of each backend (default 5)")
    add("--budget", type=float, default=0.15, help="seconds of calls a turn (default 0.15)")
    add("--scheduler", choices=("realtime", "normal"), default="realtime", help="of the ranks")
    add("--out", type=Path, default=_OUT)
    add("--add", action="store_true", help="keep the rows of other cells in --out")
    args = parser.parse_args(arguments)
    for link in args.links.split(","):
        parse_bandwidth(link)
    choice = Choice(
        [Shape.parse(text) for text in args.shapes.split(",")],
        args.links.split(","),
        parse_choices(args.ops, OPERATIONS, "operation"),
        [parse_size(text) for text in args.sizes.split(",")],
        parse_choices(args.backends, BACKENDS, "backend"),
        args.rounds,
        args.budget,
        args.scheduler == "realtime",
    )
    return args, choice


def main(arguments: Sequence[str] | None = None) -> int:
    """1 where a backend failed or a result was wrong, 2 where nothing could be measured."""
    try:
        args, choice = _read(arguments)
    except (SettingsError, ValueError) as error:
        return _refuse(str(error))
    refusal = why_not()
    if refusal is not None:
        return _refuse(refusal)
    if "giant" in choice.backends and importlib.util.find_spec(_GIANT) is None:
        return _refuse(f"the backend giant is not there (no {_GIANT}); `--backends gloo` runs")
    found, load = Found(), os.getloadavg()[0]
    for shape in choice.shapes:
        try:
            for rows in measure_shape(choice, shape, found):
                found.rows += rows
                _say(shape, rows)
        except BackendFailed as error:
            return _refuse(f"{shape}: {error}")
        header = _header(arguments, choice, found, load)
        write_report(args.out, header, found.rows, is_added=args.add)
    return 0 if all(row.is_good for row in found.rows) else 1


def _refuse(why: str) -> int:
    print(f"collectives: {why}", file=sys.stderr)
    return 2


def _say(shape: Shape, rows: Sequence[Row]) -> None:
    first = rows[0]
    print(f"-- {shape}@{first.link} {first.operation} {size_text(first.num_bytes)}")
    print(plain_table(rows).partition("\n")[2], flush=True)


def _header(
    arguments: Sequence[str] | None, choice: Choice, found: Found, load: float
) -> dict[str, object]:
    words = sys.argv[1:] if arguments is None else list(arguments)
    rates = {
        name: {"one_way": each.one_way / 1e6, "both_ways": each.both_ways / 1e6}
        for name, each in found.links.items()
    }
    return {
        "date": time.strftime("%Y-%m-%d"),
        "command": shlex.join(["python", "benchmarks/collectives.py", *words]),
        "torch": importlib.metadata.version("torch"),
        "cores": os.cpu_count(),
        "scheduler": "SCHED_RR" if choice.is_realtime else "normal scheduling",
        "load": [load, os.getloadavg()[0]],
        "links_MBps": rates,
    }


if __name__ == "__main__":
    sys.exit(main())
