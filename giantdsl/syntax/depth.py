"""A bound on nesting, so that nothing that walks the tree can exhaust the stack.

Counted on tokens: open brackets plus the operators of the expressions they stand in, which is
at least the height of the tree that the parser would build.
"""

from __future__ import annotations

from collections.abc import Sequence

from giantdsl.diagnostics import Diagnostic, Label, Sink
from giantdsl.source import SourceFile
from giantdsl.syntax.tokens import NL, Token

MAX_DEPTH = 100

_OPENS = frozenset({"LPAR", "LSQB", "LBRACE"})
_CLOSES = frozenset({"RPAR", "RSQB", "RBRACE"})
_RESETS = frozenset({NL, "COMMA", "EQUAL"})
_OPERATORS = frozenset(
    [
        "PLUS",
        "MINUS",
        "STAR",
        "SLASH",
        "FLOOR",
        "MOD",
        "POWER",
        "CMP",
        "LESS",
        "MORE",
        "AND",
        "OR",
        "NOT",
        "IF",
        "ELSE",
    ]
)
_COUNTED = _OPENS | _CLOSES | _RESETS | _OPERATORS


def cut_depth(
    source: SourceFile, tokens: list[Token], faults: list[int], sink: Sink
) -> list[Token]:
    """The tokens without what is nested deeper than MAX_DEPTH: one G010 for each such place."""
    if not _is_too_deep(tokens):
        return tokens
    kept: list[Token] = []
    levels = [0]
    total = skipped = 0
    is_reported = False
    for token in tokens:
        total = _count(token.kind, levels, total)
        if token.kind in _CLOSES:
            if skipped:
                skipped -= 1
                continue
        elif skipped or total > MAX_DEPTH:
            if not is_reported:
                _report(source, token, sink)
                faults.append(token.start)
                is_reported = True
            skipped += token.kind in _OPENS
            continue
        kept.append(token)
        is_reported = is_reported and token.kind != NL
    faults.sort()
    return kept


def _is_too_deep(tokens: Sequence[Token]) -> bool:
    levels = [0]
    total = 0
    for token in tokens:
        if token.kind in _COUNTED:
            total = _count(token.kind, levels, total)
            if total > MAX_DEPTH:
                return True
    return False


def _count(kind: str, levels: list[int], total: int) -> int:
    """Keeps `levels`, the operators at each open level; the new total of levels and operators."""
    if kind in _OPERATORS:
        levels[-1] += 1
        return total + 1
    if kind in _RESETS:
        total -= levels[-1]
        levels[-1] = 0
    elif kind in _OPENS:
        # An index adds a level to what it stands behind even after it is closed.
        opened = 1 if kind == "LSQB" else 0
        levels[-1] += opened
        levels.append(0)
        return total + 1 + opened
    elif kind in _CLOSES and len(levels) > 1:
        total -= 1 + levels.pop()
    return total


def _report(source: SourceFile, token: Token, sink: Sink) -> None:
    sink.add(
        Diagnostic(
            "G010",
            f"nested more than {MAX_DEPTH} levels deep",
            Label(source.span(token.start, token.end), f"level {MAX_DEPTH + 1}"),
            "give parts of it a name in statements of their own",
        )
    )
