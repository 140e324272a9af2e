"""`giantdsl train SPEC`: train the model on this machine."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from giantdsl.cli.compiling import compile_arguments
from giantdsl.cli.parser import add_spec
from giantdsl.cli.terminal import palette_for, say_warning
from giantdsl.diagnostics.render import PLAIN
from giantdsl.driver import Compiled
from giantdsl.launching import BACKENDS, LaunchChoice, auto_override, launch
from giantdsl.running import make_job, train_settings

if TYPE_CHECKING:
    from giantdsl.train.job import TrainJob
    from giantdsl.train.launch.failure import Outcome

EXAMPLE = (
    "giantdsl train models/demo.giant --run-dir runs/demo\n"
    "giantdsl train models/demo.giant train.steps=20 dims.layers=2\n"
    "giantdsl train models/demo.giant parallel.tp=2 parallel.pp=2"
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
    parser.add_argument(
        "--nproc", metavar="N", type=int, help="ranks on this host (default: what the plan needs)"
    )
    parser.add_argument("--nnodes", metavar="N", type=int, default=1, help="hosts that take part")
    parser.add_argument(
        "--node-rank", metavar="N", type=int, default=0, help="which of the hosts this one is"
    )
    parser.add_argument(
        "--rdzv", metavar="HOST:PORT", help="where hosts meet: the one with --node-rank 0"
    )
    parser.add_argument(
        "--backend", choices=BACKENDS, default="auto", help="how ranks talk (default auto)"
    )
    parser.add_argument("--quiet", action="store_true", help="no progress, only files and errors")


def run(args: argparse.Namespace) -> int:
    """Train, or go on training; 128 and the signal's number after an interruption."""
    compiled = compile_arguments(args)
    # Asked before torch is imported, which takes seconds.
    train_settings(compiled)
    filled = _auto_override(compiled, args)
    if filled is not None:
        args.overrides.append(filled)
        compiled = compile_arguments(args, show_warnings=False)
    from rich.console import Console

    no_color = palette_for(sys.stderr) is PLAIN
    job = make_job(
        compiled,
        run_dir=None if args.run_dir is None else Path(args.run_dir),
        resume=args.resume,
        device=args.device,
        quiet=args.quiet,
        console=Console(stderr=True, no_color=no_color),
        again=_again(args),
    )
    choice = LaunchChoice(
        nproc=args.nproc,
        nnodes=args.nnodes,
        node_rank=args.node_rank,
        rdzv=args.rdzv,
        backend=args.backend,
    )
    outcome = launch(compiled, job, choice, no_color=no_color, run_here=_run_here, warn=_warn_once)
    return outcome.exit_code


def _warn_once(message: str) -> None:
    """By one of the processes that a launcher started on this host."""
    from giantdsl.train.launch.environment import detect

    rank = detect()
    if rank is None or rank.local_rank == 0:
        say_warning(message)


def _run_here(job: TrainJob) -> Outcome:
    from giantdsl import train
    from giantdsl.train.launch.failure import Outcome

    result = train.run(job)
    return Outcome(value=result, signal=result.signal)


def _auto_override(compiled: Compiled, args: argparse.Namespace) -> str | None:
    """What fills in an `auto` size, from the ranks there are."""
    parallel = compiled.settings.parallel
    if parallel is None or all(getattr(parallel, axis) for axis in parallel.order):
        return None
    from giantdsl.train.launch.environment import detect

    rank = detect()
    started = args.nproc * args.nnodes if args.nproc else None
    return auto_override(parallel, started if rank is None else rank.world)


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
