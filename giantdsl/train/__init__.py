"""Training on this machine: `run` a job, `load_run` what it left.

`giantdsl.train(spec, run_dir=…)` is this module, called.

Names are loaded when they are first used: preparing data must not wait for torch.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from giantdsl.train.job import RunResult, TrainJob
    from giantdsl.train.loop import run
    from giantdsl.train.saved_run import LoadedRun, load_run

_HOME = {
    "LoadedRun": "saved_run",
    "RunResult": "job",
    "TrainJob": "job",
    "load_run": "saved_run",
    "run": "loop",
}

__all__ = [
    "LoadedRun",
    "RunResult",
    "TrainJob",
    "load_run",
    "run",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module `{__name__}` has no attribute `{name}`")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


class _Train(ModuleType):
    """The module, callable: `giantdsl.train` is both a package and the verb."""

    def __call__(self, spec: Any, run_dir: str | Path | None = None, **options: Any) -> RunResult:
        """Train a `giantdsl.Spec` on this machine.

        `options` are `resume`, `device` and `quiet`, as on the command line. Raises SettingsError
        for what cannot be trained, RuntimeFault where the run breaks.
        """
        result: RunResult = self.run(spec.job(run_dir, **options))
        return result


sys.modules[__name__].__class__ = _Train
