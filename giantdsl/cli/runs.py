"""A trained run, as `eval`, `generate` and `hf export` open it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from giantdsl.cli.compiling import compile_arguments
from giantdsl.cli.terminal import say
from giantdsl.errors import SettingsError

if TYPE_CHECKING:
    from giantdsl.train.saved_run import LoadedRun


def open_run(args: argparse.Namespace) -> LoadedRun:
    """The run in `--run`, which must be one of the spec's model.

    The module is the one that was trained: the run keeps its emitted source. Raises SpecError and
    SettingsError.
    """
    compiled = compile_arguments(args, show_warnings=False)
    from giantdsl.train import load_run

    loaded = load_run(Path(args.run), device=args.device, say=say)
    if loaded.plan.model != compiled.program.model:
        raise SettingsError(
            f"`{args.run}` is a run of `{loaded.plan.model}`, "
            f"`{args.spec}` is `{compiled.program.model}`"
        )
    return loaded
