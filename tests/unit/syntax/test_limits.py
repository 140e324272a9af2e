"""Hostile input: a result or a diagnostic, in bounded time."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from giantdsl.diagnostics import Sink, render_all
from giantdsl.source import SourceFile
from giantdsl.syntax import parse_expression, parse_file
from giantdsl.syntax.depth import MAX_DEPTH

from .helpers import ROOT, codes, expression, only, parse

N = 10_000


@contextmanager
def _within(seconds: float) -> Iterator[None]:
    start = time.process_time()
    yield
    assert time.process_time() - start < seconds


@pytest.mark.parametrize(
    "text",
    [
        "(" * N + "1" + ")" * N,
        "[" * N + "1" + "]" * N,
        "f(" * N + ")" * N,
        "+".join("1" * 100_000),
        "**".join("1" * 100_000),
        "-" * N + "1",
        "not " * N + "a",
        "a if b else " * N + "c",
        "a" + "[s=0]" * N,
        "a and " * N + "b",
        "f(a=" * N + "1" + ")" * N,
    ],
    ids=lambda text: text[:12],
)
def test_deep_expressions_are_one_diagnostic(text: str) -> None:
    with _within(5):
        assert codes(f"dims {{ d = {text} }}\ntrain {{ steps = 3 }}") == ["G010"]
        sink = Sink()
        assert parse_expression(SourceFile("argument", text), sink) is None
        assert render_all(sink.diagnostics)


@pytest.mark.parametrize(
    "text",
    [
        "forward() -> [] {" + "repeat 2 {" * N + "}" * N + "}",
        "forward() -> [] { if a { }" + " else if a { }" * N + "}",
        "weights hf {" + 'a = "b" {' * N + "}" * N + "}",
    ],
    ids=["repeat", "else if", "weights"],
)
def test_deep_bodies_are_one_diagnostic(text: str) -> None:
    with _within(5):
        assert codes(text) == ["G010"]


def test_what_is_not_too_deep_stays_within_the_stack_of_any_walk() -> None:
    node = expression("+".join("1" * (MAX_DEPTH - 1)))
    assert node is not None
    assert (
        parse("dims { d = " + "(" * (MAX_DEPTH - 1) + "1" + ")" * (MAX_DEPTH - 1) + " }")[1] == []
    )
    assert only("dims { d = " + "(" * MAX_DEPTH + "1" + ")" * MAX_DEPTH + " }").code == "G010"
    assert sys.getrecursionlimit() > MAX_DEPTH * 8


def test_errors_beside_the_depth_are_reported_too() -> None:
    deep = "(" * 200 + "1" + ")" * 200
    assert codes(f"dims {{ d = {deep}\n e = 3 4\n f = {deep}\n}}") == ["G010", "G004", "G010"]


def test_long_flat_things_are_no_problem() -> None:
    with _within(20):
        assert not parse("train { " + ".".join("a" * N) + " = 3 }")[1]
        expression("[" + ",".join("1" * N) + "]")
        assert not parse("train { a = [" + "1 + 2, " * N + "] }")[1]
        assert not parse('train { a = "' + "x" * 1_000_000 + '" }')[1]
        assert not parse("forward() -> [] {\n" + "x = a * b + c\n" * N + "}")[1]


@pytest.mark.parametrize(
    "text",
    [
        "\n" * 100_000,
        ";" * 100_000,
        "# a\n" * 100_000,
        "?" * 100_000,
        "é " * 100_000,
        "a\u00a0" * 100_000,
        '"a\n' * 50_000,
        ")]}" * 30_000,
        "([{" * 30_000,
        "(\n[\n{\n" * 10_000,
        "forward() -> [] {\n" + "x = (\n" * 20_000 + "}",
        "dims { a = 1 2 }\n" * 10_000,
        "a" * 1_000_000,
        "dims {" + "," * 100_000,
        "train {\n" + "a = 3,\n" * 20_000 + "}",
        "x\n" * 50_000,
        "\r" * 50_000,
        "}" * 50_000,
    ],
    ids=lambda text: repr(text[:14]),
)
def test_garbage_takes_bounded_time_and_bounded_output(text: str) -> None:
    with _within(10):
        _, found = parse(text)
        shown = render_all(found)
    assert len(found) <= 200 and len(shown) < 400_000


def test_a_hundred_thousand_lines() -> None:
    text = (ROOT / "models" / "llama3.giant").read_text(encoding="utf-8")
    copies = 20_000 // text.count("\n")
    with _within(20 / 5):
        file = parse_file(SourceFile("big.giant", text * copies), Sink())
    assert file.items


def test_a_spec_is_read_in_milliseconds() -> None:
    text = (ROOT / "models" / "llama3.giant").read_text(encoding="utf-8")
    best = min(_seconds(text) for _ in range(5))
    assert best < 0.05


def _seconds(text: str) -> float:
    start = time.process_time()
    parse_file(SourceFile("x", text), Sink())
    return time.process_time() - start


def test_reading_a_spec_without_errors_imports_neither_lark_nor_the_messages() -> None:
    import subprocess

    script = (
        "import sys\n"
        "from pathlib import Path\n"
        "from giantdsl.diagnostics import Sink\n"
        "from giantdsl.syntax import parse_file, read_source\n"
        "sink = Sink()\n"
        "source = read_source(Path(sys.argv[1]), sink)\n"
        "assert parse_file(source, sink).items and not sink.diagnostics\n"
        "for name in ('lark', 'torch', 'numpy', 'giantdsl.syntax.messages',\n"
        "             'giantdsl.syntax.oddities', 'giantdsl.syntax.recovery'):\n"
        "    assert name not in sys.modules, name\n"
    )
    spec = ROOT / "models" / "llama3.giant"
    subprocess.run([sys.executable, "-c", script, str(spec)], check=True, cwd=ROOT)
