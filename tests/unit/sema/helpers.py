"""What tests of the checker share: programs from text, and the faults of a text."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path

from giantdsl.diagnostics import Diagnostic, Sink
from giantdsl.ir.nodes import Call, Function, Op, Program, Repeat, statements_of
from giantdsl.ir.parameters import iter_parameters
from giantdsl.ir.verify import verify
from giantdsl.sema.analyze import analyze, dims_of
from giantdsl.sema.libraries import Loader
from giantdsl.source import SourceFile
from giantdsl.syntax import ast, parse_expression, parse_file

ROOT = Path(__file__).resolve().parents[3]
MODELS = sorted((ROOT / "models").glob("*.giant"))

DIMS = """
    dims {
      b: batch;  s: seq = 16;  t: seq = 8;  slot: ragged
      d = 32;  heads = 4;  kv = 2;  hd = d / heads;  ff = 64;  vocab = 61;  experts = 4
      layers = 3
    }
"""


def spec(body: str, dims: str = DIMS) -> str:
    """A model file: `body` holds everything but the model line and the dims."""
    return f"model tiny\n{textwrap.dedent(dims)}\n{textwrap.dedent(body)}\n"


def forward(body: str, result: str = "[b, s, d]", rest: str = "", dims: str = DIMS) -> str:
    """A model with `x = embedding(tokens)`, then `body`; it returns what `body` returns."""
    head = f"forward(tokens[b, s]: vocab, labels[b, s]: vocab, keep[b, s]: bool) -> {result} {{\n"
    start = "  x = embedding(tokens) as tok -> [b, s, d]\n"
    inside = textwrap.indent(textwrap.dedent(body).strip("\n"), "  ")
    return spec(f"{textwrap.dedent(rest)}\n{head}{start}{inside}\n}}", dims)


def _loader(files: Mapping[str, str], sink: Sink) -> Loader:
    def load(name: str, importer: SourceFile) -> ast.File | None:
        if name in files:
            return parse_file(SourceFile(f"{name}.giant", files[name]), sink)
        path = ROOT / "grammar" / f"{name}.giant"
        if not path.is_file():
            return None
        return parse_file(SourceFile(f"{name}.giant", path.read_text(encoding="utf-8")), sink)

    return load


def _run(
    text: str, files: Mapping[str, str], overrides: Mapping[str, str]
) -> tuple[Program | None, Sink]:
    sink = Sink()
    tree = parse_file(SourceFile("tiny.giant", text), sink)
    if sink.has_errors:
        return None, sink
    changes = {
        name: parse_expression(SourceFile("command line", value), sink)
        for name, value in overrides.items()
    }
    good = {name: expr for name, expr in changes.items() if expr is not None}
    return analyze(tree, dims_of(tree, good, sink), _loader(files, sink), sink), sink


def diagnose(
    text: str,
    files: Mapping[str, str] = {},
    overrides: Mapping[str, str] = {},
    verify_it: bool = True,
) -> list[Diagnostic]:
    """The faults of a text; a program without any must hold the invariants of the IR."""
    program, sink = _run(text, files, overrides)
    if verify_it and program is not None and not sink.has_errors:
        verify(program)
    return sink.diagnostics


def program_of(
    text: str,
    files: Mapping[str, str] = {},
    overrides: Mapping[str, str] = {},
) -> Program:
    """The verified program of a text; faults fail the test."""
    program, sink = _run(text, files, overrides)
    sink.raise_if_errors()
    assert program is not None
    verify(program)
    return program


def codes(text: str, **given: Mapping[str, str]) -> list[str]:
    return [found.code for found in diagnose(text, **given)]


def ops_of(function: Function, kind: str | None = None) -> list[Op]:
    """A function's operations, loops entered, each body once."""
    found = [s for s in statements_of(function) if isinstance(s, Op)]
    return [op for op in found if kind is None or op.kind == kind]


def calls_of(function: Function) -> list[Call]:
    return [s for s in statements_of(function) if isinstance(s, Call)]


def loops_of(function: Function) -> list[Repeat]:
    return [s for s in statements_of(function) if isinstance(s, Repeat)]


def function_of(program: Program, symbol: str) -> Function:
    return next(f for f in program.functions if f.symbol == symbol)


def every_op(program: Program) -> Iterator[Op]:
    for function in program.functions:
        yield from ops_of(function)


def names_of(program: Program) -> list[str]:
    """Logical parameter names in order."""
    return [parameter.name for parameter in iter_parameters(program)]
