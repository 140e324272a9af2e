"""`giantdsl train SPEC`: train the model on this machine."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path

from giantdsl.cli.compiling import compile_arguments
from giantdsl.cli.exit_codes import DONE
from giantdsl.cli.parser import add_spec
from giantdsl.cli.terminal import palette_for
from giantdsl.diagnostics.render import PLAIN
from giantdsl.running import make_job, refuse_ranks, train_settings

EXAMPLE = (
    "giantdsl train models/demo.giant --run-dir runs/demo\n"
    "giantdsl train models/demo.giant train.steps=20 dims.layers=2"
)


def configure(parser: argparse.ArgumentParser) -> None:
    add_spec(parser)
    parser.add_argument(
        "--run-dir", metavar="DIR", help="where the run is kept (default runs/<model>)"
    )
    parser.add_argument(
        "--resume",
        metavar="auto|never|DIR",
        default="auto",
        help="auto: go on where the run in --run-dir stopped (default); never: start anew;"
        " DIR: go on from that run or checkpoint",
    )
    parser.add_argument(
        "--device", metavar="NAME", help="cpu, cuda:0, … (default: the accelerator)"
    )
    parser.add_argument("--quiet", action="store_true", help="no progress, only files and errors")


def run(args: argparse.Namespace) -> int:
    """Train, or go on training; 128 and the signal's number after an interruption."""
    compiled = compile_arguments(args)
    # Asked before torch is imported, which takes seconds.
    refuse_ranks(compiled.settings.parallel)
    train_settings(compiled)
    from rich.console import Console

    from giantdsl import train

    job = make_job(
        compiled,
        run_dir=None if args.run_dir is None else Path(args.run_dir),
        resume=args.resume,
        device=args.device,
        quiet=args.quiet,
        console=Console(stderr=True, no_color=palette_for(sys.stderr) is PLAIN),
        again=_again(args),
    )
    result = train.run(job)
    return result.exit_code if result.interrupted else DONE


def _again(args: argparse.Namespace) -> str:
    """The command that goes on from where this one stops."""
    words = ["giantdsl", "train", args.spec]
    for name in args.profile:
        words += ["--profile", name]
    for flag, value in (
        ("--plan-file", args.plan_file),
        ("--run-dir", args.run_dir),
        ("--device", args.device),
    ):
        if value is not None:
            words += [flag, value]
    return shlex.join([*words, *args.overrides])
