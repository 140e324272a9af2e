"""Makes torch.distributed know the name `giant`. Costs nothing until a group is made."""

from __future__ import annotations

import sys
from typing import Any

NAME = "giant"


def register() -> None:
    """Let torch.distributed make groups of this name. Again is no fault."""
    import torch.distributed as dist

    if not dist.is_available() or NAME in dist.Backend.backend_list:
        return
    dist.Backend.register_backend(NAME, _make, extended_api=True, devices=["cpu"])


def autoload() -> None:
    """What torch calls when it is imported (entry point `torch.backends`)."""
    if sys.platform == "linux":
        register()


def _make(common: Any, options: Any) -> Any:
    """The backend of a new group. `options` as torch got them: None, or `load().Options`."""
    from datetime import timedelta

    from giantdsl.backends.giant.load import load

    module = load()
    own = options if isinstance(options, module.Options) else module.Options()
    own._timeout = _as_timedelta(common.timeout, timedelta)
    own.group_name = common.group_id
    return module.GiantBackend(common.store, common.group_rank, common.group_size, own)


def _as_timedelta(value: Any, kind: Any) -> Any:
    return value if isinstance(value, kind) else kind(seconds=float(value))
