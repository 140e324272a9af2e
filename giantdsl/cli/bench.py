"""`giantdsl bench collectives [SPEC]`: collectives of this machine, side by side with gloo."""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict

from giantdsl import __version__
from giantdsl.bench.cells import BACKENDS, OPERATIONS, Cell, Shape, parse_choices, parse_size
from giantdsl.bench.local import LocalSpawner
from giantdsl.bench.rows import BASE, Row
from giantdsl.bench.runner import Plan, Runner
from giantdsl.bench.session import BenchRanks
from giantdsl.bench.table import plain_table
from giantdsl.cli.compiling import compile_arguments
from giantdsl.cli.exit_codes import DONE, FAILED
from giantdsl.cli.parser import UsageError, add_changes
from giantdsl.cli.terminal import say, write
from giantdsl.planning import num_ranks, parallel_settings

EXAMPLE = (
    "giantdsl bench collectives --ranks 4 --hosts 2\n"
    "giantdsl bench collectives models/gpt2.giant --ops all_reduce --sizes 64k,1m --json"
)
_LATER = ("pipeline", "train")
_MAX_RANKS = 32
_LINK = "loopback"
_GIANT = "giantdsl.backends.giant"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", metavar="collectives", help="what to measure")
    parser.add_argument("spec", metavar="SPEC", nargs="?", help="measure on the ranks of its plan")
    add_changes(parser)
    parser.add_argument("--ranks", metavar="N", type=int, help="without SPEC: so many ranks")
    parser.add_argument(
        "--hosts", metavar="H", type=int, help="pretend so many hosts (default: the plan's, or 1)"
    )
    parser.add_argument("--ops", metavar="A,B", default=",".join(OPERATIONS))
    parser.add_argument("--sizes", metavar="A,B", default="1k,64k,1m,16m")
    parser.add_argument(
        "--backends", metavar="A,B", help=f"of {', '.join(BACKENDS)} (default: what is there)"
    )
    parser.add_argument("--rounds", metavar="N", type=int, default=5, help="each backend in turn")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")


def run(args: argparse.Namespace) -> int:
    """A row a cell and backend; 1 where one failed or computed a wrong result."""
    _check_what(args.what)
    if args.rounds < 1:
        raise UsageError(f"`--rounds {args.rounds}`: at least 1")
    operations = parse_choices(args.ops, OPERATIONS, "operation")
    cells = [Cell(op, size) for op in operations for size in map(parse_size, args.sizes.split(","))]
    shape = _shape(args)
    backends, notes = _backends(args.backends)
    notes += _notes(shape)
    rows = _measure(Plan(shape, _LINK, cells, backends, args.rounds, 0.1, _no_limit), args.json)
    if args.json:
        write(json.dumps(_as_json(shape, notes, rows), indent=2))
    else:
        write(plain_table(rows))
        for note in notes:
            say(f"note: {note}")
    return DONE if all(row.is_good for row in rows) else FAILED


def _check_what(what: str) -> None:
    if what in _LATER:
        raise UsageError(f"`giantdsl bench {what}` is not built yet in version {__version__}")
    if what != "collectives":
        raise UsageError(f"no benchmark `{what}`; there is `giantdsl bench collectives`")


def _shape(args: argparse.Namespace) -> Shape:
    ranks, hosts = args.ranks, args.hosts or 1
    if args.spec is not None:
        if args.ranks is not None:
            raise UsageError("`--ranks` is for a run without SPEC: the plan has its own")
        parallel = parallel_settings(compile_arguments(args, show_warnings=False))
        ranks, hosts = num_ranks(parallel), args.hosts or parallel.nodes or 1
    if ranks is None:
        raise UsageError("bench collectives needs a SPEC or `--ranks N`")
    if not 2 <= ranks <= _MAX_RANKS:
        raise UsageError(f"{ranks} ranks: collectives are measured on 2 to {_MAX_RANKS}")
    if hosts < 1 or ranks % hosts:
        raise UsageError(f"{ranks} ranks do not divide by {hosts} hosts")
    return Shape(hosts, ranks // hosts)


def _backends(asked: str | None) -> tuple[list[str], list[str]]:
    """Names, and notes about what is not measured. Without a choice: what is there."""
    has_giant = importlib.util.find_spec(_GIANT) is not None
    missing = f"the backend `giant` is not there: no module `{_GIANT}`"
    if asked is None:
        return ([BASE, "giant"], []) if has_giant else ([BASE], [missing])
    names = parse_choices(asked, BACKENDS, "backend")
    if "giant" in names and not has_giant:
        raise UsageError(missing)
    return names, []


def _notes(shape: Shape) -> list[str]:
    if shape.hosts == 1:
        return []
    return [
        f"{shape.hosts} hosts are pretended: all ranks are on this machine and loopback joins them; "
        "`benchmarks/collectives.py` emulates hosts and links (needs root)"
    ]


def _measure(plan: Plan, is_quiet: bool) -> list[Row]:
    def connect(backends: Sequence[str]) -> BenchRanks:
        return BenchRanks(plan.shape, backends, LocalSpawner(plan.shape))

    is_shown = not is_quiet and sys.stderr.isatty()
    runner, rows = Runner(connect), list[Row]()
    try:
        for done, found in enumerate(runner.run(plan), 1):
            rows += found
            if is_shown:
                sys.stderr.write(f"\r{done} of {len(plan.cells)} cells")
    finally:
        runner.close()
        if is_shown:
            sys.stderr.write("\r\033[K")
    return rows


def _no_limit(ranks: BenchRanks, cell: Cell) -> None:
    """Nobody knows what loopback can carry."""


def _as_json(shape: Shape, notes: list[str], rows: list[Row]) -> dict[str, object]:
    return {
        "shape": str(shape),
        "ranks": shape.ranks,
        "hosts": shape.hosts,
        "link": _LINK,
        "ok": all(row.is_good for row in rows),
        "notes": notes,
        "rows": [asdict(row) for row in rows],
    }
