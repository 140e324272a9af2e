"""Where a run begins: at nothing, or at a checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from giantdsl.errors import SettingsError
from giantdsl.train.checkpoint import (
    MARKER_FILE,
    STATE_FILE,
    Checkpoint,
    latest_checkpoint,
    open_checkpoint,
)
from giantdsl.train.run_dir import RunDir
from giantdsl.train.settings_json import changed_settings

Say = Callable[[str], None]


def choose_checkpoint(run: RunDir, resume: str, base_dir: Path, say: Say) -> Checkpoint | None:
    """The checkpoint that `resume` means; None to begin at the start.

    `auto` is the newest complete one of the run. `never` and a directory leave no result that
    does not belong to the run as it goes on: such are moved to `previous-N`. Raises SettingsError
    for a directory without a complete checkpoint.
    """
    if resume == "auto":
        return latest_checkpoint(run.checkpoints, say)
    if resume == "never":
        _set_aside(run, say)
        return None
    checkpoint = find_checkpoint(base_dir / resume, say)
    if checkpoint.path.parent.resolve() == run.checkpoints.resolve():
        moved = run.set_aside_after(checkpoint.state.step)
        if moved is not None:
            say(f"later checkpoints are now in {moved}")
    else:
        _set_aside(run, say)
    return checkpoint


def find_checkpoint(directory: Path, say: Say) -> Checkpoint:
    """The checkpoint that `directory` is, or the newest complete one of the run that it is."""
    if (directory / MARKER_FILE).exists() or (directory / STATE_FILE).exists():
        return open_checkpoint(directory)
    checkpoint = latest_checkpoint(RunDir(directory).checkpoints, say)
    if checkpoint is None:
        raise SettingsError(f"there is no complete checkpoint in {directory}")
    return checkpoint


def check_continues(
    checkpoint: Checkpoint, fingerprint: str, settings: dict[str, object], say: Say
) -> None:
    """Tell what changed since the checkpoint; refuse what would silently make another run.

    Raises SettingsError where the seed or the data is not what the run has used so far.
    """
    state = checkpoint.state
    way_out = (
        "give back the old one, or begin anew with `--resume never`, or name the checkpoint, "
        f"`--resume {checkpoint.path}`, to go on all the same"
    )
    if state.seed != settings["seed"]:
        raise SettingsError(
            f"the run's seed is {state.seed}, but `train.seed` is {settings['seed']}; {way_out}"
        )
    if state.fingerprint != fingerprint:
        raise SettingsError(f"the data is not what the run has used so far; {way_out}")
    tell_changes(checkpoint, settings, say)


def tell_changes(checkpoint: Checkpoint, settings: dict[str, object], say: Say) -> None:
    for change in changed_settings(checkpoint.state.settings, settings):
        say(f"changed since the checkpoint: {change}")


def _set_aside(run: RunDir, say: Say) -> None:
    moved = run.set_aside()
    if moved is not None:
        say(f"the earlier run's results are now in {moved}")
