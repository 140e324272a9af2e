"""Many mutants: `python -m tests.unit.syntax.mutate 20000 [SEED]`.

Each must end in diagnostics or a clean tree within 2 s of processor time; the first that does
not is printed and raised.
"""

from __future__ import annotations

import sys
import time

from giantdsl.diagnostics import Sink, render_all
from giantdsl.source import SourceFile
from giantdsl.syntax import parse_file
from giantdsl.syntax.format import format_text

from .helpers import mutants, spec_texts

LIMIT_S = 2.0


def check_mutant(text: str) -> int:
    """Parses and renders; a text without errors is formatted too. The number of diagnostics."""
    start = time.process_time()
    sink = Sink()
    source = SourceFile("mutant.giant", text)
    file = parse_file(source, sink)
    shown = render_all(sink.diagnostics)
    if not sink.diagnostics:
        once = format_text(source, sink)
        assert once is not None
        assert format_text(SourceFile("mutant.giant", once), sink) == once
    assert bool(shown) == bool(sink.diagnostics)
    for item in file.items:
        assert 0 <= item.span.start <= item.span.end <= len(text)
    for found in sink.diagnostics:
        assert 0 <= found.primary.span.start <= found.primary.span.end <= len(text)
    assert time.process_time() - start < LIMIT_S
    return len(sink.diagnostics)


def main(count: int, seed: int) -> None:
    texts = spec_texts()
    worst = broken = 0.0
    for text in mutants(texts, count, seed):
        start = time.process_time()
        try:
            broken += check_mutant(text) > 0
        except BaseException:
            print(text)
            raise
        worst = max(worst, time.process_time() - start)
    print(f"{count} mutants, {int(broken)} broken, slowest {worst:.3f} s")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0)
