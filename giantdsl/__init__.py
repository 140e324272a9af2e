"""Large transformers in a small language, compiled to readable PyTorch.

What a program uses is loaded when it is first named: importing `giantdsl` imports neither torch
nor the compiler.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from giantdsl import hf, train, verify
    from giantdsl.errors import GiantError, InternalError, RuntimeFault, SettingsError, SpecError
    from giantdsl.spec import Spec, load, loads

__version__ = "0.1.0"

__all__ = [
    "GiantError",
    "InternalError",
    "RuntimeFault",
    "SettingsError",
    "Spec",
    "SpecError",
    "__version__",
    "hf",
    "load",
    "loads",
    "train",
    "verify",
]

_HOMES = {
    "GiantError": "giantdsl.errors",
    "InternalError": "giantdsl.errors",
    "RuntimeFault": "giantdsl.errors",
    "SettingsError": "giantdsl.errors",
    "SpecError": "giantdsl.errors",
    "Spec": "giantdsl.spec",
    "load": "giantdsl.spec",
    "loads": "giantdsl.spec",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is not None:
        value = getattr(importlib.import_module(home), name)
        # Later uses find the name without coming here again.
        globals()[name] = value
        return value
    if name in ("hf", "train", "verify"):
        return importlib.import_module(f"giantdsl.{name}")
    raise AttributeError(f"module `giantdsl` has no attribute `{name}`")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
