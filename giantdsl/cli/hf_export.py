"""`giantdsl hf export SPEC --run DIR -o DIR`: a checkpoint as `transformers` reads it."""

from __future__ import annotations

import argparse
from pathlib import Path

from giantdsl.cli.compiling import compile_arguments
from giantdsl.cli.exit_codes import DONE
from giantdsl.cli.parser import add_spec
from giantdsl.cli.runs import open_run
from giantdsl.cli.terminal import say

EXAMPLE = "giantdsl hf export models/gpt2.giant --run runs/gpt2 -o gpt2-hf/"


def configure(parser: argparse.ArgumentParser) -> None:
    add_spec(parser)
    parser.add_argument(
        "--run", metavar="DIR", required=True, help="a run, or one checkpoint of it"
    )
    parser.add_argument("-o", "--output", metavar="DIR", required=True, help="the folder to write")
    parser.add_argument(
        "--map", metavar="NAME", default="hf", help="the `weights NAME` section to use (default hf)"
    )


def run(args: argparse.Namespace) -> int:
    """Write safetensors under the names of `weights hf`, and a config.json where that is known."""
    args.device = "cpu"
    compiled = compile_arguments(args)
    loaded = open_run(args)
    from giantdsl.hf import save

    save(loaded.module, compiled, Path(args.output), name=args.map)
    say(f"wrote {args.output}: step {loaded.checkpoint.state.step} of {args.run}")
    return DONE
