"""Diagnostics as text: the user's own lines with carets under them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from giantdsl.diagnostics.diagnostic import Diagnostic, Severity
from giantdsl.source import Span

_MAX_LINE = 200
_TAB = "    "


@dataclass(frozen=True, slots=True)
class Palette:
    """Escape sequences, all empty where colour is not wanted."""

    error: str = ""
    warning: str = ""
    accent: str = ""
    bold: str = ""
    reset: str = ""


PLAIN = Palette()
COLOUR = Palette("\x1b[1;31m", "\x1b[1;33m", "\x1b[1;34m", "\x1b[1m", "\x1b[0m")


@dataclass(frozen=True, slots=True)
class _Mark:
    line: int
    column: int
    span: Span
    sign: str
    text: str


def render(diagnostic: Diagnostic, palette: Palette = PLAIN) -> str:
    """One diagnostic as `error[G302]: …`, the place, the lines with carets, the help."""
    head = palette.error if diagnostic.severity is Severity.ERROR else palette.warning
    lines = [
        f"{head}{diagnostic.severity.value}[{diagnostic.code}]{palette.reset}"
        f"{palette.bold}: {diagnostic.message}{palette.reset}"
    ]
    marks = _marks(diagnostic)
    width = max(len(str(mark.line)) for mark in marks)
    blue, reset = palette.accent, palette.reset
    place = diagnostic.primary.span
    lines.append(f"{' ' * width}{blue}-->{reset} {place.source.name}:{place.line}:{place.column}")
    lines.append(f"{' ' * width} {blue}|{reset}")
    last: tuple[str, int] | None = None
    for mark in marks:
        file = mark.span.source.name
        if last is not None and last[0] != file:
            lines.append(f"{' ' * width}{blue}:::{reset} {file}:{mark.line}:{mark.column}")
            lines.append(f"{' ' * width} {blue}|{reset}")
        elif last is not None and mark.line > last[1] + 1:
            lines.append(f"{blue}...{reset}")
        source, carets = _underlined(mark)
        colour = head if mark.sign == "^" else blue
        lines.append(f"{blue}{mark.line:>{width}} |{reset} {source}".rstrip())
        lines.append(f"{' ' * width} {blue}|{reset} {colour}{carets}{reset}".rstrip())
        last = (file, mark.line)
    if diagnostic.help is not None:
        lines.append(f"{' ' * width} {blue}|{reset}")
        lines.append(f"{' ' * width} {blue}={reset} {palette.bold}help{reset}: {diagnostic.help}")
    return "\n".join(lines)


def render_all(diagnostics: Iterable[Diagnostic], palette: Palette = PLAIN) -> str:
    """All of them, an empty line between two."""
    return "\n\n".join(render(d, palette) for d in diagnostics)


def _marks(diagnostic: Diagnostic) -> Sequence[_Mark]:
    labels = [(diagnostic.primary, "^"), *((other, "-") for other in diagnostic.others)]
    marks = [_Mark(x.span.line, x.span.column, x.span, sign, x.text) for x, sign in labels]
    main = diagnostic.primary.span.source.name
    return sorted(
        marks, key=lambda m: (m.span.source.name != main, m.line, m.sign != "^", m.column)
    )


def _underlined(mark: _Mark) -> tuple[str, str]:
    """The source line and the carets under it, tabs widened and very long lines cut."""
    raw = mark.span.source.line_text(mark.line)
    start = mark.column - 1
    end = mark.span.end_column - 1 if mark.span.end_line == mark.line else len(raw)
    shift = max(0, start - _MAX_LINE // 2) if len(raw) > _MAX_LINE else 0
    shown = raw[shift : shift + _MAX_LINE]
    end = min(end, shift + _MAX_LINE)
    before = raw[shift:start].replace("\t", _TAB)
    inside = raw[start:end].replace("\t", _TAB)
    carets = " " * len(before) + mark.sign * max(1, len(inside))
    text = f" {mark.text}" if mark.text else ""
    return "".join(c if c.isprintable() else "?" for c in shown.replace("\t", _TAB)), carets + text
