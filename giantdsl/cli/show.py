"""`giantdsl show SPEC ast|ir|source`: the compiler's steps, for people."""

from __future__ import annotations

import argparse
from pathlib import Path

from giantdsl import __version__
from giantdsl.cli.compiling import compile_arguments
from giantdsl.cli.exit_codes import DONE
from giantdsl.cli.parser import UsageError, add_changes
from giantdsl.cli.terminal import write
from giantdsl.cli.tree_text import format_tree
from giantdsl.diagnostics import Sink
from giantdsl.driver import make_plan
from giantdsl.ir.text import format_program
from giantdsl.syntax import parse_file, read_source

EXAMPLE = "giantdsl show models/gpt2.giant source\ngiantdsl show models/gpt2.giant ir dims.layers=2"

STEPS = ("ast", "ir", "source")
_LATER = ("plan", "schedule")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("spec", metavar="SPEC", help="a .giant file")
    parser.add_argument(
        "step", metavar="STEP", choices=(*STEPS, *_LATER), help=f"one of {', '.join(STEPS)}"
    )
    add_changes(parser)


def run(args: argparse.Namespace) -> int:
    """Print one step. The tree needs only a file that parses, the others one that checks."""
    if args.step in _LATER:
        raise UsageError(
            f"`giantdsl show SPEC {args.step}` is not built yet in version {__version__}"
        )
    if args.step == "ast":
        write(_tree(args))
        return DONE
    compiled = compile_arguments(args)
    write(format_program(compiled.program) if args.step == "ir" else make_plan(compiled).source)
    return DONE


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
