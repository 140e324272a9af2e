"""`giantdsl eval SPEC --run DIR`: loss and perplexity of a checkpoint."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from giantdsl.cli.exit_codes import DONE
from giantdsl.cli.parser import add_spec
from giantdsl.cli.runs import open_run
from giantdsl.cli.terminal import say, write

EXAMPLE = "giantdsl eval models/demo.giant --run runs/demo\ngiantdsl eval models/demo.giant --run runs/demo --batches 20"


def configure(parser: argparse.ArgumentParser) -> None:
    add_spec(parser)
    parser.add_argument(
        "--run", metavar="DIR", required=True, help="a run, or one checkpoint of it"
    )
    parser.add_argument(
        "--batches", metavar="N", type=int, help="how many batches (default: all held-out data)"
    )
    parser.add_argument(
        "--device", metavar="NAME", help="cpu, cuda:0, … (default: the accelerator)"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")


def run(args: argparse.Namespace) -> int:
    """Print the held-out loss of the run's newest checkpoint, in nats a token and a byte."""
    loaded = open_run(args)
    from giantdsl.train.evaluate import evaluate

    result = evaluate(
        loaded.module,
        loaded.plan,
        loaded.source("eval"),
        batch=loaded.settings.batch,
        microbatch=loaded.settings.microbatch,
        num_batches=args.batches,
    )
    if args.json:
        write(json.dumps({"step": loaded.checkpoint.state.step, **result.as_metrics()}))
    else:
        say(f"step {loaded.checkpoint.state.step}, {Path(args.run)}")
        write(str(result))
    return DONE
