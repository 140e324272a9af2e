"""`giantdsl hf import DIR -o SPEC`: a Hugging Face configuration as a spec."""

from __future__ import annotations

import argparse
from pathlib import Path

from giantdsl.cli.exit_codes import DONE
from giantdsl.cli.terminal import say, write
from giantdsl.weights.hf_config import import_spec

EXAMPLE = "giantdsl hf import Llama-3.1-8B/ -o llama.giant"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", metavar="DIR", help="a folder with a config.json")
    parser.add_argument("-o", "--output", metavar="SPEC", required=True, help="`-` is stdout")


def run(args: argparse.Namespace) -> int:
    """Write the spec. A key of the configuration that is not understood is refused by name."""
    text = import_spec(args.directory)
    if args.output == "-":
        write(text)
        return DONE
    Path(args.output).write_text(text, encoding="utf-8", newline="\n")
    say(f'wrote {args.output}; weights: `train.init = hf("{args.directory}")`')
    return DONE
