"""Checkpoints: directories `step-00000100` that are complete or do not count (invariant 18).

    model.safetensors      master weights and buffers by logical name
    optimizer.safetensors  its state, `<slot>/<logical name>`
    state.json             step, samples, settings; size and digest of the two files above
    complete               digest of state.json; written last

A checkpoint is built in a hidden directory beside its place, synced to the disk and renamed.
Nothing in it is a pickle.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from giantdsl.errors import SettingsError
from giantdsl.train.files import digest, sync_directory, sync_file, write_json, writing

FORMAT = 1
MODEL_FILE = "model.safetensors"
OPTIMIZER_FILE = "optimizer.safetensors"
STATE_FILE = "state.json"
MARKER_FILE = "complete"
_NAME = re.compile(r"step-(\d{8,})")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainState:
    """What a run is, besides its tensors: everything else is a function of these."""

    step: int
    samples: int
    tokens: int
    seconds: float
    seed: int
    fingerprint: str
    settings: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A complete checkpoint on disk."""

    path: Path
    state: TrainState

    def model_tensors(self) -> dict[str, Tensor]:
        return load_file(self.path / MODEL_FILE)

    def optimizer_tensors(self) -> dict[str, Tensor]:
        return load_file(self.path / OPTIMIZER_FILE)


def checkpoint_name(step: int) -> str:
    return f"step-{step:08d}"


def save_checkpoint(
    root: Path,
    state: TrainState,
    model: Mapping[str, Tensor],
    optimizer: Mapping[str, Tensor],
    *,
    keep: int | None = None,
) -> Path:
    """Write a checkpoint under `root` and return its directory.

    Then keep the `keep` newest (None: all). Raises SettingsError where the disk refuses; earlier
    checkpoints are untouched then.
    """
    final = root / checkpoint_name(state.step)
    temporary = root / f".{final.name}.new"
    with writing("checkpoint", final):
        root.mkdir(parents=True, exist_ok=True)
        remove_leftovers(root)
        temporary.mkdir()
        try:
            _write_files(temporary, state, model, optimizer)
            if final.exists():
                _remove(final)
            os.replace(temporary, final)
            sync_directory(root)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        if keep is not None:
            _retain(root, keep)
    return final


def _write_files(
    directory: Path,
    state: TrainState,
    model: Mapping[str, Tensor],
    optimizer: Mapping[str, Tensor],
) -> None:
    files = {}
    for name, tensors in ((MODEL_FILE, model), (OPTIMIZER_FILE, optimizer)):
        _save_tensors(directory / name, tensors)
        size = (directory / name).stat().st_size
        files[name] = {"size_bytes": size, "sha256": digest(directory / name)}
    write_json(directory / STATE_FILE, {"format": FORMAT, **asdict(state), "files": files})
    write_json(directory / MARKER_FILE, {"sha256": digest(directory / STATE_FILE)})
    sync_directory(directory)


def _save_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    on_cpu = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    try:
        save_file(on_cpu, path, metadata={"format": "pt"})
    except SafetensorError as error:
        # The library reports what the system said as text, its number included.
        found = re.search(r"os error (\d+)", str(error))
        if found is None:
            raise OSError(str(error)) from error
        raise OSError(int(found[1]), os.strerror(int(found[1]))) from error
    sync_file(path)


def remove_leftovers(root: Path) -> None:
    """Delete what a stopped save or deletion left. Only the owner of the run may call it."""
    for path in root.glob(".step-*"):
        shutil.rmtree(path)


def _remove(path: Path) -> None:
    """Delete a checkpoint so that at no moment half of it stands under its name."""
    doomed = path.with_name(f".{path.name}.old")
    os.replace(path, doomed)
    shutil.rmtree(doomed)


def _retain(root: Path, keep: int) -> None:
    complete = [p for _, p in checkpoint_directories(root) if (p / MARKER_FILE).exists()]
    for path in complete[: max(0, len(complete) - max(1, keep))]:
        _remove(path)


def checkpoint_directories(root: Path) -> list[tuple[int, Path]]:
    """Steps and directories of checkpoints, complete or not, in order of steps."""
    if not root.is_dir():
        return []
    named = [(int(m[1]), p) for p in root.iterdir() if (m := _NAME.fullmatch(p.name))]
    return [(step, path) for step, path in sorted(named) if path.is_dir()]


def latest_checkpoint(root: Path, say: Callable[[str], None]) -> Checkpoint | None:
    """The newest complete checkpoint under `root`; `say` hears what was passed over and why."""
    for _, path in reversed(checkpoint_directories(root)):
        try:
            return open_checkpoint(path)
        except SettingsError as error:
            say(f"passed over: {error}")
    return None


def open_checkpoint(path: Path) -> Checkpoint:
    """Check a checkpoint from end to end. Raises SettingsError saying what is wrong with it."""

    def damaged(why: str) -> SettingsError:
        return SettingsError(f"checkpoint {path} is not complete: {why}")

    marker, described = _read_json(path / MARKER_FILE), _read_json(path / STATE_FILE)
    if marker is None:
        raise damaged(f"`{MARKER_FILE}` is missing or unreadable, so its writing never ended")
    if described is None or marker.get("sha256") != digest(path / STATE_FILE):
        raise damaged(f"`{STATE_FILE}` is missing or was changed")
    if described["format"] != FORMAT:
        raise SettingsError(
            f"checkpoint {path} has format {described['format']}; this giantdsl reads {FORMAT}"
        )
    for name, wanted in described["files"].items():
        file = path / name
        if not file.is_file():
            raise damaged(f"`{name}` is missing")
        size = file.stat().st_size
        if size != wanted["size_bytes"]:
            raise damaged(f"`{name}` has {size} bytes instead of {wanted['size_bytes']}")
        if digest(file) != wanted["sha256"]:
            raise damaged(f"`{name}` does not have the contents that were written")
    fields = TrainState.__dataclass_fields__
    return Checkpoint(path, TrainState(**{key: described[key] for key in fields}))


def _read_json(path: Path) -> dict[str, Any] | None:
    """None where there is no file or it is not a JSON object."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def module_tensors(module: nn.Module) -> dict[str, Tensor]:
    """A module's parameters and persistent buffers, each once, by logical name."""
    parameters = {name: p.detach() for name, p in module.named_parameters()}
    kept = module.state_dict().keys()
    return parameters | {n: b for n, b in module.named_buffers() if n in kept}


def restore(wanted: Mapping[str, Tensor], found: Mapping[str, Tensor], what: str) -> None:
    """Copy `found` into `wanted`, in place.

    Names, shapes and types must be the same: the first that is not is a SettingsError naming the
    tensor, and nothing was copied then.
    """
    for name, tensor in wanted.items():
        if name not in found:
            raise SettingsError(f"{what} has no tensor `{name}`; the spec's model needs it")
        other = found[name]
        if other.shape != tensor.shape or other.dtype != tensor.dtype:
            raise SettingsError(
                f"tensor `{name}` of {what} is {_describe(other)}; "
                f"the spec's model needs {_describe(tensor)}"
            )
    for name in found:
        if name not in wanted:
            raise SettingsError(f"{what} has tensor `{name}`, which the spec's model has not")
    for name, tensor in wanted.items():
        tensor.data.copy_(found[name])


def _describe(tensor: Tensor) -> str:
    shape = " x ".join(map(str, tensor.shape)) or "one number"
    return f"{shape} of {str(tensor.dtype).removeprefix('torch.')}"
