"""Diagnostics are values: built in one place per rule, rendered in another."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from giantdsl.source import Span


class Severity(Enum):
    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Label:
    """A stretch of the spec and the few words that stand beside its carets."""

    span: Span
    text: str = ""


@dataclass(frozen=True, slots=True)
class Fix:
    """An edit that would mend the fault: replace `span` by `text`."""

    span: Span
    text: str


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One fault. `message` stands alone: lower case, no full stop, identifiers in backticks."""

    code: str
    message: str
    primary: Label
    help: str | None = None
    others: tuple[Label, ...] = ()
    fixes: tuple[Fix, ...] = ()
    severity: Severity = Severity.ERROR

    @property
    def line(self) -> int:
        return self.primary.span.line

    @property
    def column(self) -> int:
        return self.primary.span.column

    def __str__(self) -> str:
        from giantdsl.diagnostics.render import render

        return render(self)
