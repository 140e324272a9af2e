"""Which newlines end a statement."""

from __future__ import annotations

from collections.abc import Sequence

from giantdsl.source import SourceFile
from giantdsl.syntax.sections import SECTION_KINDS, is_section_start
from giantdsl.syntax.tokens import NL, Token

_OPENS = frozenset({"LPAR", "LSQB"})
_CLOSES = frozenset({"RPAR", "RSQB"})
# A line that ends in one of these goes on.
HANGING = frozenset(
    [
        "COMMA",
        "EQUAL",
        "ARROW",
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
    ]
)
# A line that starts with one of these goes on with the one before.
LEADING = frozenset(["ARROW", "AS", "PLUS", "STAR", "SLASH", "FLOOR", "POWER", "AND", "OR"])


def drop_newlines(tokens: Sequence[Token], source: SourceFile) -> list[Token]:
    """Only the newlines and `;` that end something; never two in a row, none after `{`.

    A newline before a section always stays: what hangs there is an error.
    """
    kept: list[Token] = []
    text = source.text
    depth = 0
    last = NL
    size = len(tokens)
    for i, token in enumerate(tokens):
        kind = token.kind
        if kind == NL:
            if last == NL or last == "LBRACE":
                continue
            if text[token.start : token.end] != ";":
                following = tokens[i + 1].kind if i + 1 < size else ""
                if depth > 0:
                    continue
                if following == "STAR" and _is_path_start(tokens, i + 1):
                    following = ""
                if (last in HANGING or following in LEADING) and not (
                    following in SECTION_KINDS and is_section_start(tokens, i + 1, source)
                ):
                    continue
        elif kind in _OPENS:
            depth += 1
        elif kind in _CLOSES:
            depth -= 1
        kept.append(token)
        last = kind
    return kept


def _is_path_start(tokens: Sequence[Token], i: int) -> bool:
    """The `*` at `i` starts the path of a `weights` entry: `*.norm = …`."""
    return i + 1 < len(tokens) and tokens[i + 1].kind in ("DOT", "EQUAL")
