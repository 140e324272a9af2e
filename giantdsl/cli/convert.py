"""`giantdsl convert SPEC -o FILE.py`: the model as one plain PyTorch file."""

from __future__ import annotations

import argparse
from pathlib import Path

from giantdsl.cli.compiling import compile_arguments
from giantdsl.cli.exit_codes import DONE
from giantdsl.cli.parser import UsageError, add_spec
from giantdsl.cli.terminal import say, write
from giantdsl.driver import Compiled, make_plan

EXAMPLE = (
    "giantdsl convert models/gpt2.giant -o gpt2.py\n"
    "giantdsl convert models/gpt2.giant dims.layers=2 -o small.py --weights small/\n"
    "giantdsl convert models/gpt2.giant --plan -o gpt2.py"
)


def configure(parser: argparse.ArgumentParser) -> None:
    add_spec(parser)
    parser.add_argument(
        "-o", "--output", metavar="FILE", required=True, help="the file to write; `-` is stdout"
    )
    parser.add_argument(
        "--weights", metavar="DIR", help="also write the state dict, as DIR/model.safetensors"
    )
    weights = parser.add_mutually_exclusive_group()
    weights.add_argument(
        "--seed", metavar="N", type=int, default=0, help="initial values for --weights (default 0)"
    )
    weights.add_argument(
        "--run", metavar="DIR", help="weights for --weights: a run's newest checkpoint, or one"
    )
    parser.add_argument(
        "--plan",
        action="store_true",
        help="the sliced stage modules instead, one file a stage: FILE_stage_0.py, …",
    )


def run(args: argparse.Namespace) -> int:
    """Write the file, and the weights where they are asked for."""
    if args.plan and args.weights:
        raise UsageError("`--weights` goes with the plain module, not with `--plan`")
    if args.run and not args.weights:
        raise UsageError("`--run` says which weights to write; say where: `--weights DIR`")
    compiled = compile_arguments(args)
    if args.plan:
        return _write_stages(compiled, args.output)
    plan = make_plan(compiled)
    if args.output == "-":
        write(plan.source)
    else:
        Path(args.output).write_text(plan.source, encoding="utf-8", newline="\n")
        say(f"wrote {args.output}: {plan.class_name}, {plan.num_parameters:,} parameters")
    if args.weights:
        from giantdsl.running import write_state_dict

        path = write_state_dict(compiled, Path(args.weights), seed=args.seed, run=args.run)
        say(f"wrote {path}")
    return DONE


def _write_stages(compiled: Compiled, output: str) -> int:
    """One file a stage beside `output`, or all of them to stdout."""
    from giantdsl.planning import make_parallel_plan

    plan = make_parallel_plan(compiled)
    for stage in plan.stages:
        if output == "-":
            write(stage.source)
            continue
        path = Path(output)
        path = path.with_name(f"{path.stem}_stage_{stage.index}.py")
        path.write_text(stage.source, encoding="utf-8", newline="\n")
        say(f"wrote {path}: {stage.class_name}, {stage.units}")
    return DONE
