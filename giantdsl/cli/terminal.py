"""Where the command line writes. The only place that asks the environment about colours."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import TextIO

from giantdsl.diagnostics import Diagnostic, render_all
from giantdsl.diagnostics.render import COLOUR, PLAIN, Palette


def palette_for(stream: TextIO) -> Palette:
    """Colours for a terminal, none for a file or a pipe, under NO_COLOR or on a dumb terminal."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return PLAIN
    return COLOUR if stream.isatty() else PLAIN


def say(text: str) -> None:
    """A line for people, on stderr: stdout is for what the command makes."""
    print(text, file=sys.stderr)


def say_error(message: str) -> None:
    """`error: …` on one line."""
    palette = palette_for(sys.stderr)
    line = " ".join(message.split())
    say(f"{palette.error}error{palette.reset}{palette.bold}:{palette.reset} {line}")


def say_warning(message: str) -> None:
    """`warning: …` on one line."""
    palette = palette_for(sys.stderr)
    line = " ".join(message.split())
    say(f"{palette.warning}warning{palette.reset}{palette.bold}:{palette.reset} {line}")


def say_diagnostics(diagnostics: Iterable[Diagnostic]) -> None:
    """All of them on stderr, and how to read more about the first."""
    found = list(diagnostics)
    if not found:
        return
    say(render_all(found, palette_for(sys.stderr)))
    say(f"\n{_tally(found)}; `giantdsl explain {found[0].code}` says more")


def _tally(found: list[Diagnostic]) -> str:
    counts = {"error": 0, "warning": 0}
    for diagnostic in found:
        counts[diagnostic.severity.value] += 1
    return ", ".join(
        f"{count} {word}{'s' if count > 1 else ''}" for word, count in counts.items() if count
    )


def write(text: str) -> None:
    """What the command makes, on stdout."""
    sys.stdout.write(text)
    if not text.endswith("\n"):
        sys.stdout.write("\n")
