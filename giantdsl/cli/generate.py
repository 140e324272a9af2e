"""`giantdsl generate SPEC --run DIR --prompt TEXT`: text from a checkpoint."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from giantdsl.cli.compiling import compile_arguments
from giantdsl.cli.exit_codes import DONE
from giantdsl.cli.parser import UsageError, add_spec
from giantdsl.cli.runs import open_run
from giantdsl.errors import SettingsError

if TYPE_CHECKING:
    from torch import nn

    from giantdsl.plan import Plan
    from giantdsl.train.data_protocol import Tokenizer

EXAMPLE = (
    'giantdsl generate models/demo.giant --run runs/demo --prompt "def "\n'
    'giantdsl generate models/gpt2.giant --hf gpt2/ --prompt "Once upon" --temperature 0.7'
)


def configure(parser: argparse.ArgumentParser) -> None:
    add_spec(parser)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--run", metavar="DIR", help="a run, or one checkpoint of it")
    where.add_argument(
        "--hf", metavar="DIR", help="a Hugging Face checkpoint with a tokenizer.json"
    )
    parser.add_argument("--prompt", metavar="TEXT", required=True, help="`-` reads stdin")
    parser.add_argument("--max-tokens", metavar="N", type=int, default=200, help="default 200")
    parser.add_argument(
        "--temperature", metavar="T", type=float, default=0.8, help="0 takes the likeliest token"
    )
    parser.add_argument(
        "--top-p", metavar="P", type=float, default=1.0, help="draw from this share of probability"
    )
    parser.add_argument("--seed", metavar="N", type=int, default=0, help="default 0")
    parser.add_argument(
        "--device", metavar="NAME", help="cpu, cuda:0, … (default: the accelerator)"
    )


def run(args: argparse.Namespace) -> int:
    """Write the prompt and what follows it to stdout, piece by piece."""
    if args.max_tokens < 1:
        raise UsageError("--max-tokens is at least 1")
    prompt = sys.stdin.read() if args.prompt == "-" else args.prompt
    module, plan, tokenizer = _from_run(args) if args.run else _from_hf(args)
    from giantdsl.train.generate import generate

    pieces = generate(
        module,
        plan,
        tokenizer,
        prompt,
        max_tokens=args.max_tokens,
        temperature=args.temperature,
        top_p=args.top_p,
        seed=args.seed,
    )
    sys.stdout.write(prompt)
    for piece in pieces:
        sys.stdout.write(piece)
        sys.stdout.flush()
    sys.stdout.write("\n")
    return DONE


def _from_run(args: argparse.Namespace) -> tuple[nn.Module, Plan, Tokenizer]:
    loaded = open_run(args)
    tokenizer = loaded.source("train").tokenizer
    if tokenizer is None:
        raise SettingsError(
            f"the data of `{args.run}` has no tokenizer, so there is no text to write"
        )
    return loaded.module, loaded.plan, tokenizer


def _from_hf(args: argparse.Namespace) -> tuple[nn.Module, Plan, Tokenizer]:
    folder = Path(args.hf)
    compiled = compile_arguments(args, show_warnings=False)
    from giantdsl.attrs import Config
    from giantdsl.driver import make_plan
    from giantdsl.hf import load
    from giantdsl.runtime.device import pick_device
    from giantdsl.runtime.loader import build_module
    from giantdsl.train.data.tokenizers import build_tokenizer

    named = Config("file", (), (("path", str((folder / "tokenizer.json").absolute())),))
    tokenizer = build_tokenizer(named, Path(), folder, None)
    plan = make_plan(compiled)
    module = build_module(plan, pick_device(args.device)).eval()
    load(module, compiled, folder)
    return module, plan, tokenizer
