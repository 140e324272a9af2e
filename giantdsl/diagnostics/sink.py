"""Collects the diagnostics of one run over a spec."""

from __future__ import annotations

from giantdsl.diagnostics.diagnostic import Diagnostic, Severity
from giantdsl.errors import SpecError


class Sink:
    """Every fault once, in the order of the file. The same fault found twice is kept once."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, int, int, str], Diagnostic] = {}

    def add(self, diagnostic: Diagnostic) -> None:
        span = diagnostic.primary.span
        key = (diagnostic.code, span.start, span.end, span.source.name)
        self._found.setdefault(key, diagnostic)

    @property
    def diagnostics(self) -> list[Diagnostic]:
        """Errors and warnings by file and place."""
        return sorted(
            self._found.values(),
            key=lambda d: (d.primary.span.source.name, d.primary.span.start, d.code),
        )

    @property
    def errors(self) -> list[Diagnostic]:
        return [d for d in self.diagnostics if d.severity is Severity.ERROR]

    @property
    def has_errors(self) -> bool:
        return any(d.severity is Severity.ERROR for d in self._found.values())

    def raise_if_errors(self) -> None:
        """Raises SpecError with all diagnostics if one of them is an error."""
        if self.has_errors:
            raise SpecError(self.diagnostics)
