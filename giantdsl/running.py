"""From a compiled spec to a run of it: what `giantdsl train` and `giantdsl.train` both do.

torch is imported only by what needs it, so that a wrong spec is reported at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from giantdsl.attrs import Config
from giantdsl.driver import Compiled, make_plan
from giantdsl.errors import SettingsError
from giantdsl.resolved import resolved_text
from giantdsl.settings.values import TrainSettings

if TYPE_CHECKING:
    from rich.console import Console
    from torch import nn

    from giantdsl.train.job import TrainJob


def train_settings(compiled: Compiled) -> TrainSettings:
    """Raises SettingsError for a spec without a `train` section."""
    settings = compiled.settings.train
    if settings is None:
        raise SettingsError(
            f"`{compiled.source.name}` has no `train` section, so it does not say on what to train"
        )
    return settings


def base_dir(compiled: Compiled) -> Path:
    """Where relative paths in the spec begin: the folder of its file."""
    return Path(compiled.source.name).absolute().parent


def default_run_dir(compiled: Compiled) -> Path:
    """`train.out` (from the spec's folder) where it is set, else `runs/<model>` from here."""
    settings = compiled.settings.train
    if settings is not None and settings.out is not None:
        return base_dir(compiled) / settings.out
    return Path("runs") / compiled.program.model


def make_job(
    compiled: Compiled,
    *,
    run_dir: Path | None = None,
    resume: str = "auto",
    device: str | None = None,
    quiet: bool = False,
    console: Console | None = None,
    again: str | None = None,
) -> TrainJob:
    """Everything `giantdsl.train.run` needs.

    Raises SettingsError for a spec without `train`, and initial weights that are not there.
    """
    from giantdsl.train.job import TrainJob

    settings = train_settings(compiled)
    return TrainJob(
        plan=make_plan(compiled),
        settings=settings,
        run_dir=default_run_dir(compiled) if run_dir is None else run_dir,
        base_dir=base_dir(compiled),
        resume=resume,
        resolved_spec=resolved_text(compiled.source, compiled.changes, compiled.plan),
        device=device,
        quiet=quiet,
        console=console,
        initialize=_initializer(compiled, settings),
        again="the same command again" if again is None else again,
    )


@dataclass(frozen=True, slots=True)
class HfWeights:
    """Fills a fresh module from a Hugging Face checkpoint. Can be handed to another process."""

    compiled: Compiled
    directory: Path

    def __call__(self, module: nn.Module) -> None:
        from giantdsl.hf import load

        load(module, self.compiled, self.directory)


def _initializer(compiled: Compiled, settings: TrainSettings) -> HfWeights | None:
    """What fills the fresh module under `train.init = hf("folder")`; None without it."""
    if settings.init is None:
        return None
    return HfWeights(compiled, _init_directory(settings.init, base_dir(compiled)))


def _init_directory(init: Config, base: Path) -> Path:
    named = (
        init.args[0] if init.args else next((v for _, v in init.kwargs if isinstance(v, str)), None)
    )
    if init.name != "hf" or not isinstance(named, str):
        raise SettingsError(f'`train.init = {init}` is not `hf("folder")`')
    directory = base / named
    if not directory.is_dir():
        raise SettingsError(
            f"`train.init` names `{named}`, but there is no folder `{directory}`;"
            f" fetch it first: `hf download {named} --local-dir {directory}`"
        )
    return directory


def write_state_dict(
    compiled: Compiled, directory: Path, *, seed: int = 0, run: str | None = None
) -> Path:
    """Write `directory/model.safetensors`: names and shapes of the plain module's state dict.

    The values are those of `seed`, or of a run's newest checkpoint. Raises SettingsError.
    """
    from safetensors.torch import save_file

    plan = make_plan(compiled)
    if run is not None:
        from giantdsl.train import load_run

        loaded = load_run(Path(run), device="cpu")
        if loaded.plan.model != plan.model:
            raise SettingsError(f"`{run}` is a run of `{loaded.plan.model}`, not of `{plan.model}`")
        module = loaded.module
    else:
        from giantdsl.runtime.loader import build_module

        module = build_module(plan, seed=seed, search_path=base_dir(compiled))
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "model.safetensors"
    tensors = {name: tensor.contiguous() for name, tensor in module.state_dict().items()}
    save_file(tensors, str(path), metadata={"format": "pt"})
    return path
