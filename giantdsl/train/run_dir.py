"""What lies in a run directory, besides metrics and checkpoints.

    spec.giant      the spec as it was run, overrides and profile applied
    model.py        the emitted module
    decode.py       the same, continuing a sequence with a key-value cache; empty if it cannot
    stages/         the emitted stages, where the model was cut or sliced
    run.json        what the plan says of the module: class, inputs, parameters, losses
    settings.json   the train section, defaults filled in

Together with a checkpoint that is enough to evaluate and to generate; the spec is not read again.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from giantdsl.errors import SettingsError
from giantdsl.plan import InputInfo, ParallelPlan, ParameterInfo, Plan
from giantdsl.settings.values import TrainSettings
from giantdsl.train.checkpoint import checkpoint_directories
from giantdsl.train.files import write_atomically, write_json, writing
from giantdsl.train.settings_json import settings_from_json, settings_to_json

FORMAT = 1


@dataclass(frozen=True, slots=True)
class RunDir:
    """The places in a run directory."""

    path: Path

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def events(self) -> Path:
        return self.path / "tensorboard"

    @property
    def cache(self) -> Path:
        return self.path / "cache"

    @property
    def source(self) -> Path:
        return self.path / "model.py"

    @property
    def decode_source(self) -> Path:
        return self.path / "decode.py"

    def set_aside(self) -> Path | None:
        """Move an earlier run's results to `previous-N`; None where there are none."""
        return self._move([p for p in (self.metrics, self.checkpoints, self.events) if p.exists()])

    def set_aside_after(self, step: int) -> Path | None:
        """Move the checkpoints of later steps to `previous-N`; None where there are none."""
        return self._move([p for n, p in checkpoint_directories(self.checkpoints) if n > step])

    def _move(self, paths: list[Path]) -> Path | None:
        if not paths:
            return None
        number = 1 + max((int(p.name[9:]) for p in self.path.glob("previous-*")), default=0)
        target = self.path / f"previous-{number}"
        with writing("run directory", target):
            target.mkdir()
            for path in paths:
                path.rename(target / path.name)
        return target


def write_run_files(
    run: RunDir, plan: Plan, settings: TrainSettings, spec: str, base_dir: Path
) -> None:
    """Write everything the table above lists. Raises SettingsError where the disk refuses."""
    described = asdict(plan)
    del described["source"], described["decode_source"]
    described |= {"format": FORMAT, "base_dir": str(base_dir.resolve())}
    with writing("run directory", run.path):
        write_atomically(run.path / "spec.giant", spec)
        write_atomically(run.source, plan.source)
        write_atomically(run.decode_source, plan.decode_source)
        write_json(run.path / "run.json", described)
        write_json(run.path / "settings.json", settings_to_json(settings))


def write_stages(run: RunDir, plan: ParallelPlan) -> None:
    """`stages/`: the emitted source of each stage, for people; what is loaded is `model.py`."""
    folder = run.path / "stages"
    with writing("run directory", folder):
        folder.mkdir(exist_ok=True)
        for stage in plan.stages:
            write_atomically(folder / f"stage_{stage.index}.py", stage.source)


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A run directory, read back."""

    run: RunDir
    plan: Plan
    settings: TrainSettings
    base_dir: Path


def read_run_files(path: Path) -> StoredRun:
    """Raises SettingsError where `path` is no run directory."""
    run = RunDir(path)
    try:
        described = json.loads((path / "run.json").read_text(encoding="utf-8"))
        settings = json.loads((path / "settings.json").read_text(encoding="utf-8"))
        sources = [p.read_text(encoding="utf-8") for p in (run.source, run.decode_source)]
    except (FileNotFoundError, NotADirectoryError) as error:
        raise SettingsError(
            f"{path} is not a run directory: it has no `{Path(error.filename).name}`"
        ) from None
    except ValueError as error:
        raise SettingsError(f"{path} is a damaged run directory: {error}") from error
    if described.pop("format") != FORMAT:
        raise SettingsError(f"run directory {path} was written by another version of giantdsl")
    base_dir = Path(described.pop("base_dir"))
    return StoredRun(run, _plan(described, *sources), settings_from_json(settings), base_dir)


def _plan(described: dict[str, Any], source: str, decode_source: str) -> Plan:
    fields = {k: tuple(v) if isinstance(v, list) else v for k, v in described.items()}
    fields["inputs"] = tuple(InputInfo(**_tuples(i)) for i in described["inputs"])
    fields["parameters"] = tuple(ParameterInfo(**_tuples(p)) for p in described["parameters"])
    return Plan(source=source, decode_source=decode_source, **fields)


def _tuples(values: dict[str, Any]) -> dict[str, Any]:
    return {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
