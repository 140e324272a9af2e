"""What the tests of the syntax layer share: specs to read, short ways to parse, mutants."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from giantdsl.diagnostics import Diagnostic, Fix, Sink
from giantdsl.source import SourceFile
from giantdsl.syntax import ast, parse_expression, parse_file

ROOT = Path(__file__).resolve().parents[3]
SPECS = sorted([*(ROOT / "models").glob("*.giant"), *(ROOT / "grammar" / "std").rglob("*.giant")])

_FRAGMENTS = [
    *"(){}[]=,;:.\n\t\"'#@+-*/<>\\%&? \u00a0é→",
    *("return", "block", "if", "else", "repeat", "..", "->", "as", "dims", "1f1b", "12ab"),
    *('"unclosed', " } ", " { ", "model x\n", "\r\n", "\r", "1e999", "[b, s, d]"),
]


def spec_texts() -> list[str]:
    assert SPECS, "no specs found"
    return [path.read_text(encoding="utf-8") for path in SPECS]


def parse(text: str) -> tuple[ast.File, list[Diagnostic]]:
    sink = Sink()
    file = parse_file(SourceFile("test.giant", text), sink)
    return file, sink.diagnostics


def parse_clean(text: str) -> ast.File:
    file, found = parse(text)
    assert not found, "\n\n".join(map(str, found))
    return file


def codes(text: str) -> list[str]:
    """The codes of all diagnostics, in the order of the text."""
    return [diagnostic.code for diagnostic in parse(text)[1]]


def places(text: str) -> list[tuple[str, int, int]]:
    """(code, line, column) of each diagnostic."""
    return [(found.code, found.line, found.column) for found in parse(text)[1]]


def only(text: str) -> Diagnostic:
    found = parse(text)[1]
    assert len(found) == 1, [str(x) for x in found]
    return found[0]


def mended(text: str) -> str:
    """The text after the fixes of its only diagnostic."""
    fixes: list[Fix] = sorted(only(text).fixes, key=lambda fix: fix.span.start, reverse=True)
    assert fixes, "no fix offered"
    for fix in fixes:
        text = text[: fix.span.start] + fix.text + text[fix.span.end :]
    return text


def expression(text: str) -> ast.Expr:
    sink = Sink()
    result = parse_expression(SourceFile("test.giant", text), sink)
    assert result is not None, "\n\n".join(map(str, sink.diagnostics))
    return result


def mutants(texts: list[str], count: int, seed: int) -> Iterator[str]:
    """`count` broken copies of the texts: characters and words put in, taken out, moved.

    The same for the same seed. The suite runs some hundreds, `mutate.py` as many as asked.
    """
    rng = random.Random(seed)
    for _ in range(count):
        text = rng.choice(texts)
        for _ in range(rng.choice([1, 1, 1, 2, 3, 10])):
            text = _mutant(text, rng)
        yield text


def _mutant(text: str, rng: random.Random) -> str:
    at = rng.randrange(len(text) + 1)
    chance = rng.random()
    if chance < 0.3:
        return text[:at] + rng.choice(_FRAGMENTS) + text[at:]
    if chance < 0.6:
        return text[:at] + text[at + rng.choice([1, 1, 2, 5, 30]) :]
    if chance < 0.8:
        return text[:at] + rng.choice(_FRAGMENTS) + text[at + 1 :]
    if chance < 0.95:
        start = rng.randrange(len(text) + 1)
        return text[:at] + text[start : start + 40] + text[at:]
    return text[:at]
