"""Text to tree: the steps in order."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from giantdsl.diagnostics import Diagnostic, Label, Sink
from giantdsl.source import SourceFile
from giantdsl.syntax import ast
from giantdsl.syntax.brackets import balance
from giantdsl.syntax.build import Builder
from giantdsl.syntax.depth import cut_depth
from giantdsl.syntax.engine import Engine
from giantdsl.syntax.lexer import lex
from giantdsl.syntax.newlines import drop_newlines
from giantdsl.syntax.table import ParseTable, load_table
from giantdsl.syntax.tokens import NL, Token

MAX_ERRORS = 200


@lru_cache(maxsize=1)
def table() -> ParseTable:
    """The parse table, read once a process."""
    return load_table()


def parse_file(source: SourceFile, sink: Sink) -> ast.File:
    """The sections that could be read; all syntax errors go to the sink."""
    items = _parse(source, sink, "start")
    return ast.File(span=source.span(0, len(source.text)), source=source, items=items or ())


def parse_expression(source: SourceFile, sink: Sink) -> ast.Expr | None:
    """One expression, `pad(61, 8)`; None and a diagnostic if it is not one."""
    result: ast.Expr | None = _parse_whole(source, sink, "expr")
    return result


def parse_setting(source: SourceFile, sink: Sink) -> ast.Setting | None:
    """One setting, `train.lr.peak=1e-3`; None and a diagnostic if it is not one."""
    result: ast.Setting | None = _parse_whole(source, sink, "setting")
    return result


def _parse_whole(source: SourceFile, sink: Sink, start: str) -> Any:
    """All of it or nothing: a mended value is no value."""
    found = Sink()
    result = _parse(source, found, start)
    for diagnostic in found.diagnostics:
        sink.add(diagnostic)
    return None if found.has_errors else result


class _Limited(Sink):
    """Hands on the first MAX_ERRORS faults, then says that it stops."""

    def __init__(self, inner: Sink) -> None:
        super().__init__()
        self._inner = inner
        self.left = MAX_ERRORS

    def add(self, diagnostic: Diagnostic) -> None:
        self.left -= 1
        if self.left > 0:
            self._inner.add(diagnostic)
        elif self.left == 0:
            self._inner.add(
                Diagnostic(
                    "G023",
                    f"{MAX_ERRORS} syntax errors, and there are more",
                    Label(diagnostic.primary.span, "the last one shown"),
                    "mend the first ones and check again",
                )
            )


def _parse(source: SourceFile, sink: Sink, start: str) -> Any:
    limited = _Limited(sink)
    lexed = lex(source, limited)
    tokens = drop_newlines(balance(source, lexed, limited), source)
    tokens = cut_depth(source, tokens, lexed.faults, limited)
    if start != "start":
        tokens = _stripped(tokens)
    engine = Engine(table(), Builder(source, limited), source, tokens, start)

    def on_error(at: int) -> int | None:
        # Imported here: a file without errors needs none of it, and start-up time is counted.
        from giantdsl.syntax.messages import report
        from giantdsl.syntax.recovery import resume

        if limited.left > 0:
            report(engine, at, lexed.faults, limited)
        if start != "start" or limited.left <= 0:
            return None
        return resume(engine, at)

    return engine.run(on_error)


def _stripped(tokens: list[Token]) -> list[Token]:
    """An expression may have empty lines around it."""
    end = len(tokens)
    while end and tokens[end - 1].kind == NL:
        end -= 1
    return tokens[:end]
