"""`giantdsl new NAME`: a starter spec that checks and trains as it is."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from giantdsl.cli.exit_codes import DONE
from giantdsl.cli.parser import UsageError
from giantdsl.cli.terminal import say

EXAMPLE = "giantdsl new tiny\ngiantdsl train tiny.giant"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the model's name; NAME.giant is written")


def run(args: argparse.Namespace) -> int:
    """Write NAME.giant here; a file that exists is left alone."""
    if re.fullmatch(r"[A-Za-z_]\w*", args.name) is None:
        raise UsageError(f"`{args.name}` is no name: letters, digits and _, a letter first")
    path = Path(f"{args.name}.giant")
    template = Path(__file__).with_name("starter.giant").read_text(encoding="utf-8")
    try:
        with path.open("x", encoding="utf-8", newline="\n") as file:
            file.write(template.replace("model starter", f"model {args.name}"))
    except FileExistsError:
        raise UsageError(f"{path} exists; give another name or move it away") from None
    say(f"wrote {path}; try `giantdsl check {path}` and `giantdsl train {path}`")
    return DONE
