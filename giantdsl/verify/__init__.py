"""Does a model on many ranks compute what one process computes?

layouts, shrink, small   what is tried: plans as text, a small version of the spec (no torch)
batch, reference         a batch that tries a model, and what one process makes of it
check_rank, compare      one step of a layout on its ranks, put together and compared
runner, rows             layouts one after another, a row each
mutants, places          rules broken on purpose; where in the spec a tensor comes from

`giantdsl.verify(spec, layouts=[…])` is this module, called.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from giantdsl.verify.rows import Row


class _Verify(ModuleType):
    """The module, callable: `giantdsl.verify` is both a package and the verb."""

    def __call__(self, spec: Any, layouts: Sequence[str] = (), **options: Any) -> list[Row]:
        """Compare layouts of a `giantdsl.Spec` with one process; its own plan where none is named.

        `layouts` are as on the command line, `"tp=2,pp=2"`. `options` are `full` and `seed`.
        Raises SpecError for a layout that is not legal.
        """
        rows: list[Row] = spec.verify(layouts, **options)
        return rows


sys.modules[__name__].__class__ = _Verify
