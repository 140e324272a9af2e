"""After an error: to the next statement, or into the braces that belong to the broken one."""

from __future__ import annotations

from giantdsl.diagnostics import nearest
from giantdsl.syntax.engine import Engine
from giantdsl.syntax.newlines import HANGING
from giantdsl.syntax.sections import SECTION_KINDS
from giantdsl.syntax.tokens import END, NL, WORDS, Token

_OPENS = frozenset({"LPAR", "LSQB", "LBRACE"})
_CLOSES = frozenset({"RPAR", "RSQB", "RBRACE"})

# The shortest head that a body can stand behind, by the keyword of the broken one.
_SECTION_HEADS: dict[str, list[str]] = {
    "BLOCK": ["BLOCK", "NAME", "LPAR", "RPAR", "ARROW", "LSQB", "RSQB"],
    "FORWARD": ["FORWARD", "LPAR", "RPAR", "ARROW", "LSQB", "RSQB"],
    "DIMS": ["DIMS"],
    "PARALLEL": ["PARALLEL"],
    "TRAIN": ["TRAIN"],
    "PROFILE": ["PROFILE", "NAME"],
    "WEIGHTS": ["WEIGHTS", "NAME"],
}
_STATEMENT_HEADS = (["IF", "NAME"], ["NAME", "EQUAL", "STRING"])
_SECTION_WORDS = tuple(word for word, kind in WORDS.items() if kind in SECTION_KINDS)


def statement_end(engine: Engine, at: int) -> int:
    """Index of the token that ends the statement `at` lies in: `_NL`, `}`, the end, or the `{`
    at or after `at` that opens a body of it."""
    depth = 0
    index = engine.checkpoints[-1].token
    while True:
        kind = engine.token(index).kind
        if kind == END:
            return index
        if depth == 0 and index >= at and kind in (NL, "LBRACE", "RBRACE"):
            return index
        if kind in _OPENS:
            depth += 1
        elif kind in _CLOSES and depth:
            depth -= 1
        index += 1


def resume(engine: Engine, at: int) -> int:
    """Cuts the stacks back to the start of the broken statement; the index to go on from.

    Always moves on: either past `at`, or to a `}` or end that can be read now.
    """
    first = engine.checkpoints[-1].token
    engine.cut_back()
    if len(engine.checkpoints) == 1:
        return _resume_section(engine, first, at)
    return _resume_in_braces(engine, at)


def _resume_in_braces(engine: Engine, at: int) -> int:
    if engine.token(at).kind == "COMMA" and _ends_line(engine, at):
        # A comma too many at the end of a line hides the newline that ends the statement.
        engine.restart(at + 1)
        return at + 1
    end = statement_end(engine, at)
    while engine.token(end).kind == "LBRACE":
        for head in _STATEMENT_HEADS:
            if engine.token(end - 1).kind in HANGING:
                break  # braces where a value should be: no statements in there
            if engine.accepts([*head, "LBRACE"]):
                return _insert_head(engine, head, end)
        end = statement_end(engine, _after_braces(engine, end))
    if engine.token(end).kind == NL:
        end += 1
    engine.restart(end)
    return end


def _resume_section(engine: Engine, first: int, at: int) -> int:
    index = at
    keyword = section_keyword(engine, first)
    while (kind := engine.token(index).kind) != END:
        if index > first and kind in SECTION_KINDS and _is_in_column_one(engine, index):
            break
        if kind == "LBRACE":
            head = _SECTION_HEADS.get(keyword)
            if head is not None and engine.accepts([*head, "LBRACE"]):
                return _insert_head(engine, head, index)
            index = _after_braces(engine, index)
        else:
            index += 1
    engine.restart(index)
    return index


def _is_in_column_one(engine: Engine, index: int) -> bool:
    is_line_start = engine.token(index - 1).kind == NL
    return is_line_start and engine.source.position(engine.token(index).start)[1] == 1


def _ends_line(engine: Engine, at: int) -> bool:
    """Token `at` is the last of its line, and outside of ( ) and [ ]."""
    depth = 0
    for index in range(engine.checkpoints[-1].token, at):
        kind = engine.token(index).kind
        depth += (kind in _OPENS) - (kind in _CLOSES)
    gap = engine.source.text[engine.token(at).end : engine.token(at + 1).start]
    return depth == 0 and "\n" in gap


def section_keyword(engine: Engine, first: int) -> str:
    """The kind of the keyword a broken section starts with, misspellings included."""
    token = engine.token(first)
    if token.kind in SECTION_KINDS:
        return token.kind
    word = engine.source.text[token.start : token.end]
    near = nearest(word, _SECTION_WORDS) if token.kind == "NAME" else None
    return WORDS[near] if near else ""


def _insert_head(engine: Engine, head: list[str], brace: int) -> int:
    start = engine.token(brace).start
    engine.tokens[brace:brace] = [Token(kind, start, start) for kind in head]
    engine.replaced.add(start)
    engine.restart(brace)
    return brace


def _after_braces(engine: Engine, brace: int) -> int:
    depth = 0
    index = brace
    while (kind := engine.token(index).kind) != END:
        index += 1
        if kind == "LBRACE":
            depth += 1
        elif kind == "RBRACE":
            depth -= 1
            if depth == 0:
                break
    return index
