"""Text to tokens. Needs no parser state: keywords that serve as names are settled later."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from giantdsl.diagnostics import Sink
from giantdsl.source import SourceFile
from giantdsl.syntax.tokens import NL, PUNCTUATION, WORDS, Token

_PATTERN = re.compile(
    r"""
      (?P<SPACE>[ \t\f]+|\r(?=\n))
    | (?P<NEWLINE>\n)
    | (?P<NAME>[A-Za-z_][A-Za-z0-9_]*(?!\w)'?)
    | (?P<PUNCT>(?!:=|=>|\.\.\.)(?:->|\*\*|//|==|!=|<=|>=|\.\.|[-<>+*/%.,:=@()\[\]{};]))
    | (?P<ONE_F_ONE_B>1f1b(?!\w))
    | (?P<NUMBER>[0-9][0-9_]*(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?[kMBT]?(?![\w.]))
    | (?P<STRING>"(?:[^"\\\n]|\\.)*")
    | (?P<COMMENT>\#[^\r\n]*)
    """,
    re.VERBOSE,
)
_TRANSPOSED = re.compile(r"\.T(?!\w)")


@dataclass(slots=True)
class Lexed:
    """What the lexer found.

    `tokens`: a run of line breaks is one `_NL`, `;` is a `_NL` of its own. `faults`: offsets of
    what is no token; the statement around it is not blamed for more. `swallowed`: offsets of
    unclosed strings, which may have swallowed brackets.
    """

    tokens: list[Token] = field(default_factory=list)
    comments: list[Token] = field(default_factory=list)
    faults: list[int] = field(default_factory=list)
    swallowed: list[int] = field(default_factory=list)


def lex(source: SourceFile, sink: Sink) -> Lexed:
    """Every character becomes part of a token, a comment, space, or a diagnostic."""
    lexed = Lexed()
    start = 1 if source.text.startswith("\ufeff") else 0
    _scan(source, lexed, start, sink)
    return lexed


def _scan(source: SourceFile, lexed: Lexed, at: int, sink: Sink) -> None:
    text, tokens = source.text, lexed.tokens
    match = _PATTERN.match
    last = ""
    odd = None
    while at < len(text):
        found = match(text, at)
        if found is None:
            # Imported here: almost no file needs it, and start-up time is counted.
            from giantdsl.syntax.oddities import Oddities

            odd = odd or Oddities(source, lexed, sink)
            at = odd.read(at)
            last = tokens[-1].kind if tokens else ""
            continue
        kind = found.lastgroup
        end = found.end()
        if kind == "NAME":
            last = WORDS.get(found[0], "NAME")
            tokens.append(Token(last, at, end))
        elif kind == "PUNCT":
            kind = PUNCTUATION[found[0]]
            # `.T` can only follow the string of a `weights` entry.
            if kind == "DOT" and last == "STRING" and (mark := _TRANSPOSED.match(text, at)):
                kind, end = "TRANSPOSED", mark.end()
            last = kind
            tokens.append(Token(last, at, end))
        elif kind == "NEWLINE":
            if last != "NEWLINE":
                last = "NEWLINE"
                tokens.append(Token(NL, at, end))
        elif kind == "COMMENT":
            lexed.comments.append(Token("COMMENT", at, end))
        elif kind != "SPACE":
            last = str(kind)
            tokens.append(Token(last, at, end))
        at = end
    if odd is not None:
        odd.finish()
