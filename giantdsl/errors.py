"""The four kinds of failure. They are never mixed: who has to act differs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from giantdsl.diagnostics import Diagnostic


class GiantError(Exception):
    """Anything giantdsl raises on purpose."""


class SpecError(GiantError):
    """The spec is wrong. `str()` renders every diagnostic as the command line does."""

    def __init__(self, diagnostics: Sequence[Diagnostic]) -> None:
        self.diagnostics = tuple(diagnostics)
        super().__init__(", ".join(d.code for d in self.diagnostics))

    def __str__(self) -> str:
        from giantdsl.diagnostics import render_all

        return render_all(self.diagnostics)


class SettingsError(GiantError):
    """A setting, an argument or the environment is wrong: one line, for the user to mend."""


class RuntimeFault(GiantError):
    """A run broke. Says where: rank, step and instruction as far as they are known."""


class InternalError(GiantError):
    """We are wrong. The message asks for a report."""

    def __init__(self, message: str) -> None:
        super().__init__(f"internal error: {message}; please report this with the spec")
