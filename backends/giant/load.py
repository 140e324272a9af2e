"""The built library, as a Python module."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType

from giantdsl.backends.giant.build import MODULE, build


def load() -> ModuleType:
    """Builds it where that has not been done. Raises BuildError."""
    if MODULE in sys.modules:
        return sys.modules[MODULE]
    # Its symbols are torch's.
    import torch  # noqa: F401

    spec = importlib.util.spec_from_file_location(MODULE, build())
    assert spec is not None and spec.loader is not None, "a path with .so has a loader"
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules[MODULE] = module
    return module
