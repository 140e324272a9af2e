"""`giantdsl show SPEC ast|ir|plan|source|schedule`: the compiler's steps, for people."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from giantdsl.cli.compiling import compile_arguments
from giantdsl.cli.exit_codes import DONE
from giantdsl.cli.parser import UsageError, add_changes
from giantdsl.cli.terminal import write
from giantdsl.cli.tree_text import format_tree
from giantdsl.diagnostics import Sink
from giantdsl.driver import Compiled, make_plan
from giantdsl.ir.text import format_program
from giantdsl.syntax import parse_file, read_source

EXAMPLE = (
    "giantdsl show models/gpt2.giant source\n"
    "giantdsl show models/llama3.giant plan --stage 1\n"
    "giantdsl show models/demo.giant schedule parallel.pp=4 train.microbatch=2"
)

STEPS = ("ast", "ir", "plan", "source", "schedule")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("spec", metavar="SPEC", help="a .giant file")
    parser.add_argument("step", metavar="STEP", choices=STEPS, help=f"one of {', '.join(STEPS)}")
    parser.add_argument(
        "--stage", metavar="N", type=int, help="one stage of the plan: its source, or its layouts"
    )
    parser.add_argument("--rank", metavar="N", type=int, help="what one rank runs (schedule)")
    add_changes(parser)


def run(args: argparse.Namespace) -> int:
    """Print one step. The tree needs only a file that parses, the others one that checks."""
    if args.stage is not None and args.step not in ("plan", "source"):
        raise UsageError("`--stage` goes with `plan` and `source`")
    if args.rank is not None and args.step != "schedule":
        raise UsageError("`--rank` goes with `schedule`")
    if args.step == "ast":
        write(_tree(args))
        return DONE
    compiled = compile_arguments(args)
    show: dict[str, Callable[[Compiled, argparse.Namespace], str]] = {
        "ir": lambda compiled, args: format_program(compiled.program),
        "plan": _plan,
        "source": _source,
        "schedule": _schedule,
    }
    write(show[args.step](compiled, args))
    return DONE


def _plan(compiled: Compiled, args: argparse.Namespace) -> str:
    from giantdsl.plan_text import plan_text

    return plan_text(compiled, args.stage)


def _source(compiled: Compiled, args: argparse.Namespace) -> str:
    if args.stage is None:
        return make_plan(compiled).source
    from giantdsl.planning import make_parallel_plan

    stages = make_parallel_plan(compiled).stages
    if not 0 <= args.stage < len(stages):
        raise UsageError(f"there is no stage {args.stage}: the plan has {len(stages)}, from 0")
    source: str = stages[args.stage].source
    return source


def _schedule(compiled: Compiled, args: argparse.Namespace) -> str:
    from giantdsl.plan_text import schedule_text

    return schedule_text(compiled, args.rank)


def _tree(args: argparse.Namespace) -> str:
    if args.overrides or args.profile or args.plan_file:
        raise UsageError(
            "the tree is the file's own: overrides, profiles and plans do not change it"
        )
    sink = Sink()
    source = read_source(Path(args.spec), sink)
    sink.raise_if_errors()
    assert source is not None, "a file that cannot be read is reported"
    tree = parse_file(source, sink)
    sink.raise_if_errors()
    return format_tree(tree)
