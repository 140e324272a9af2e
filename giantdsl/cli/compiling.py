"""From the arguments every command shares to a compiled spec."""

from __future__ import annotations

import argparse
from pathlib import Path

from giantdsl.cli.terminal import say_diagnostics
from giantdsl.driver import Compiled, compile_spec
from giantdsl.errors import SettingsError
from giantdsl.resources import model_names, model_path


def compile_arguments(args: argparse.Namespace, *, show_warnings: bool = True) -> Compiled:
    """The spec under its profiles, plan and overrides; its warnings are shown.

    Raises SpecError and SettingsError as `compile_spec` does.
    """
    path = Path(args.spec)
    if not path.exists() and args.spec in model_names():
        raise SettingsError(
            f"no file `{args.spec}`; the model that comes with giantdsl is"
            f" `{_short(model_path(args.spec))}`"
        )
    compiled = compile_spec(
        path, overrides=args.overrides, profiles=args.profile, plan_file=args.plan_file
    )
    if show_warnings:
        say_diagnostics(compiled.warnings)
    return compiled


def _short(path: Path) -> Path:
    """As seen from here, where that is shorter."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path
