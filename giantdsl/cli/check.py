"""`giantdsl check SPEC`: everything that is wrong with a spec, or how large the model is."""

from __future__ import annotations

import argparse
import json

from giantdsl import __version__
from giantdsl.cli.compiling import compile_arguments
from giantdsl.cli.exit_codes import DONE, WRONG_INPUT
from giantdsl.cli.parser import add_spec
from giantdsl.cli.terminal import write
from giantdsl.diagnostics import Diagnostic
from giantdsl.diagnostics.to_json import diagnostic_to_json, to_sarif
from giantdsl.driver import Compiled
from giantdsl.errors import SettingsError, SpecError
from giantdsl.summary import Summary, summarize

EXAMPLE = (
    "giantdsl check models/gpt2.giant\n"
    "giantdsl check models/gpt2.giant dims.layers=24 parallel.tp=4 --json"
)


def configure(parser: argparse.ArgumentParser) -> None:
    add_spec(parser)
    machine = parser.add_mutually_exclusive_group()
    machine.add_argument("--json", action="store_true", help="one JSON object on stdout")
    machine.add_argument("--sarif", action="store_true", help="a SARIF log on stdout")


def run(args: argparse.Namespace) -> int:
    """One line about the model on stdout; what is wrong goes to stderr, or into the object."""
    if not (args.json or args.sarif):
        compiled = compile_arguments(args)
        write(describe(compiled.program.model, summarize(compiled)))
        return DONE
    try:
        compiled = compile_arguments(args, show_warnings=False)
    except SpecError as error:
        write(_for_tools(args, None, error.diagnostics))
        return WRONG_INPUT
    except SettingsError as error:
        if not args.json:
            raise
        write(json.dumps(_object(args, None, (), str(error)), indent=2))
        return WRONG_INPUT
    write(_for_tools(args, compiled, compiled.warnings))
    return DONE


def describe(model: str, summary: Summary) -> str:
    """`gpt2: 124,439,808 parameters, 0.29 GFLOPs per token forward, 1 stage`."""
    stages = f"{summary.num_stages} stage{'s' if summary.num_stages != 1 else ''}"
    return (
        f"{model}: {summary.num_parameters:,} parameters,"
        f" {format_flops(summary.flops_per_token)} per token forward, {stages}"
    )


def format_flops(count: float) -> str:
    """Three digits and a unit: `292 MFLOPs`, `1.24 GFLOPs`."""
    for unit in ("", "k", "M", "G"):
        if count < 999.5:
            return f"{count:.3g} {unit}FLOPs"
        count /= 1000
    return f"{count:.3g} TFLOPs" if count < 999.5 else f"{count:,.0f} TFLOPs"


def _for_tools(
    args: argparse.Namespace, compiled: Compiled | None, found: tuple[Diagnostic, ...]
) -> str:
    if args.sarif:
        return json.dumps(to_sarif(found, __version__), indent=2)
    return json.dumps(_object(args, compiled, found), indent=2)


def _object(
    args: argparse.Namespace,
    compiled: Compiled | None,
    found: tuple[Diagnostic, ...],
    error: str | None = None,
) -> dict[str, object]:
    summary = None if compiled is None else summarize(compiled)
    return {
        "spec": args.spec,
        "ok": compiled is not None,
        "model": None if compiled is None else compiled.program.model,
        "parameters": None if summary is None else summary.num_parameters,
        "flops_per_token": None if summary is None else summary.flops_per_token,
        "stages": None if summary is None else summary.num_stages,
        "error": error,
        "diagnostics": [diagnostic_to_json(d) for d in found],
    }
