"""torch.distributed's backend `giant`: native hierarchical collectives for tensors on CPUs.

`torch.distributed.init_process_group("giant")` works in any program: torch finds `autoload` by its
entry point. The library is built at first use (`build.py`), from `csrc/`.
"""

from giantdsl.backends.giant.build import BuildError, build
from giantdsl.backends.giant.load import load
from giantdsl.backends.giant.probe import capability
from giantdsl.backends.giant.register import autoload, register

__all__ = ["BuildError", "autoload", "build", "capability", "load", "register"]

autoload()
