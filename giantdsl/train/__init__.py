"""Training on this machine: `run` a job, `load_run` what it left.

Names are loaded when they are first used: preparing data must not wait for torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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
