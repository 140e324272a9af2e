"""torch.compile, asked for by `train.compile`."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import torch
from torch import Tensor

from giantdsl.errors import SettingsError


def compile_losses(
    run: Callable[..., dict[str, Tensor]], device: torch.device
) -> Callable[..., dict[str, Tensor]]:
    """The same function, compiled at its first call.

    Raises SettingsError where there is no C++ compiler, which torch.compile needs on every device.
    """
    compiler = find_compiler()
    if compiler is None:
        raise SettingsError(
            "`train.compile = true` needs a C++ compiler, and there is none here; install g++ "
            "(Debian and Ubuntu: `apt install g++`) or set `train.compile = false`"
        )
    compiled: Callable[..., dict[str, Tensor]] = torch.compile(run)
    return compiled


def find_compiler() -> str | None:
    """The path of the compiler that torch's inductor would call; None where there is none."""
    from torch._inductor import config

    names = config.cpp.cxx
    candidates = names if isinstance(names, list | tuple) else (names,)
    return next((path for name in candidates if name and (path := shutil.which(name))), None)
