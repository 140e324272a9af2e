"""`giantdsl verify SPEC`: do many ranks compute what one process computes?"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict

from giantdsl.cli.compiling import compile_arguments
from giantdsl.cli.exit_codes import DONE, FAILED
from giantdsl.cli.parser import UsageError, add_spec
from giantdsl.cli.terminal import say, say_warning, write
from giantdsl.diagnostics import did_you_mean
from giantdsl.errors import SettingsError, SpecError
from giantdsl.verify.layouts import all_layouts, parse_layouts, spec_layout
from giantdsl.verify.rows import Layout, Row
from giantdsl.verify.small import SmallSpec

EXAMPLE = (
    "giantdsl verify models/gpt2.giant\n"
    "giantdsl verify models/llama3.giant --layouts tp=2 pp=2,tp=2,schedule=zero_bubble\n"
    "giantdsl verify models/mixtral.giant --all 8"
)
_MAX_RANKS = 64
_BACKENDS = ("auto", "giant", "gloo")


def configure(parser: argparse.ArgumentParser) -> None:
    add_spec(parser)
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--layouts", metavar="LAYOUT", nargs="+", help="layouts such as tp=2 or pp=2,tp=2,zero=1"
    )
    which.add_argument("--all", metavar="N", type=int, help="every legal layout of up to N ranks")
    parser.add_argument(
        "--full", action="store_true", help="the spec's own sizes, not a small version of it"
    )
    parser.add_argument(
        "--backend", choices=_BACKENDS, default="auto", help="how ranks talk (default auto)"
    )
    parser.add_argument("--seed", metavar="N", type=int, default=0, help="of weights and batch")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.add_argument(
        "--mutant",
        metavar="NAME",
        help="break one rule on purpose and see whether it is found; `list` names them",
    )


def run(args: argparse.Namespace) -> int:
    """A row a layout; 1 where one differs from one process."""
    if args.mutant is not None:
        from giantdsl.verify.mutants import MUTANTS

        if args.mutant == "list":
            write("\n".join(f"{name:<18} {what}" for name, what in MUTANTS.items()))
            return DONE
        if args.mutant not in MUTANTS:
            near = did_you_mean(args.mutant, MUTANTS)
            raise UsageError(f"no mutant `{args.mutant}`" + (f"; {near}" if near else ""))
    if args.all is not None and not 1 <= args.all <= _MAX_RANKS:
        raise UsageError(f"`--all {args.all}`: from 1 to {_MAX_RANKS} ranks")
    compiled = compile_arguments(args, show_warnings=False)
    small = SmallSpec(compiled, full=args.full)
    layouts = _layouts(small, args)
    legal, skipped = _legal(small, layouts, asked=args.all is None)
    started = time.perf_counter()
    rows = _compare(small, legal, args)
    if args.json:
        write(json.dumps(_as_json(args.spec, rows, skipped), indent=2))
    else:
        say(_summary(rows, skipped, time.perf_counter() - started))
    return DONE if rows and all(row.ok for row in rows) else FAILED


def _layouts(small: SmallSpec, args: argparse.Namespace) -> list[Layout]:
    if args.layouts:
        return parse_layouts(args.layouts, small.space)
    if args.all is not None:
        return list(all_layouts(small.space, args.all))
    return [spec_layout(small.space)]


def _legal(
    small: SmallSpec, layouts: Sequence[Layout], *, asked: bool
) -> tuple[list[Layout], Counter[str]]:
    """The layouts that compile; why others do not, counted by code.

    A layout that was asked for has to: its SpecError is raised.
    """
    found: list[Layout] = []
    skipped: Counter[str] = Counter()
    for layout in layouts:
        try:
            small.compile(layout)
        except SpecError as error:
            if asked:
                raise
            skipped[error.diagnostics[0].code] += 1
            continue
        found.append(layout)
    return found, skipped


def _compare(small: SmallSpec, layouts: Sequence[Layout], args: argparse.Namespace) -> list[Row]:
    from giantdsl.verify.runner import Runner

    if not layouts:
        raise SettingsError("no layout is legal: nothing to compare")
    most = max(layout.ranks for layout in layouts)
    width = max(6, *(len(layout.label) for layout in layouts))
    rows: list[Row] = []
    backend = _backend(args.backend) if most > 1 else None
    with Runner(small.compile, most_ranks=most, backend=backend, seed=args.seed) as runner:
        if not args.json:
            write(f"{'layout':<{width}}  ranks  {'error':>8}  {'bound':>7}      worst tensor")
        for layout in layouts:
            row = runner.run(layout, args.mutant)
            if row is None:
                continue
            rows.append(row)
            if not args.json:
                write(_line(row, width))
                sys.stdout.flush()
    return rows


def _backend(name: str) -> str:
    """Float64 is what is compared, so the CPU's."""
    if name != "auto":
        return name
    from giantdsl.backends.choose import choose_backend

    chosen = choose_backend("cpu")
    if chosen.warning is not None:
        say_warning(chosen.warning)
    return str(chosen.name)


def _line(row: Row, width: int) -> str:
    start = f"{row.layout:<{width}}  {row.ranks:5}"
    if row.message is not None:
        return f"{start}  FAILED {_first_lines(row.message)}"
    verdict = "ok  " if row.ok else "FAIL"
    line = f"{start}  {row.error:8.1e}  {row.bound:7.0e}  {verdict}  {row.worst}"
    if row.ok:
        return line
    place = f", {row.place}" if row.place else ""
    return f"{line}\n{'':{width}}         first to differ: {row.first}{place}"


def _first_lines(message: str) -> str:
    """What went wrong, and the last line of a traceback if there is one."""
    lines = [line.strip() for line in message.strip().splitlines() if line.strip()]
    return lines[0] if len(lines) == 1 else f"{lines[0]} … {lines[-1]}"


def _summary(rows: Sequence[Row], skipped: Counter[str], seconds: float) -> str:
    good = sum(row.ok for row in rows)
    text = f"{good} of {len(rows)} layouts equal one process, {seconds:.0f} s"
    if skipped:
        why = ", ".join(f"{code} {count}" for code, count in sorted(skipped.items()))
        text += f"; {sum(skipped.values())} are not legal for this spec ({why})"
    return text


def _as_json(spec: str, rows: Sequence[Row], skipped: Counter[str]) -> dict[str, object]:
    return {
        "spec": spec,
        "ok": bool(rows) and all(row.ok for row in rows),
        "rows": [asdict(row) for row in rows],
        "not_legal": dict(sorted(skipped.items())),
    }
