"""`giantdsl explain CODE`: a diagnostic at length."""

from __future__ import annotations

import argparse

from giantdsl.cli.exit_codes import DONE
from giantdsl.cli.parser import UsageError
from giantdsl.cli.terminal import write
from giantdsl.diagnostics import did_you_mean
from giantdsl.diagnostics.codes import CODES
from giantdsl.resources import page_path

EXAMPLE = "giantdsl explain G302\ngiantdsl explain          # lists every code"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("code", metavar="CODE", nargs="?", help="as in `error[G302]`")


def run(args: argparse.Namespace) -> int:
    """Print the page of one diagnostic, or the list of all."""
    if args.code is None:
        write("\n".join(f"{code}  {title}" for code, title in CODES.items()))
        return DONE
    code = args.code.upper().removeprefix("ERROR").removeprefix("WARNING").strip("[]")
    if code not in CODES:
        help_ = did_you_mean(code, CODES, "`giantdsl explain` lists them all")
        raise UsageError(f"no diagnostic `{args.code}`; {help_}")
    write(page_path(code).read_text(encoding="utf-8"))
    return DONE
