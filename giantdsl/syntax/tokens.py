"""Tokens: a kind (the terminal's name in `giant.lark`) and a stretch of the text."""

from __future__ import annotations

from typing import NamedTuple

NL = "_NL"
END = "$END"

KEYWORDS = {
    word: word.upper()
    for word in [
        "model",
        "import",
        "from",
        "dims",
        "default",
        "block",
        "extern",
        "along",
        "forward",
        "return",
        "repeat",
        "in",
        "shared",
        "if",
        "else",
        "stage",
        "every",
        "loss",
        "as",
        "and",
        "or",
        "not",
        "parallel",
        "shard",
        "on",
        "train",
        "weights",
        "profile",
    ]
}
LITERALS = {"true": "TRUE", "false": "FALSE", "none": "NONE"}
WORDS = KEYWORDS | LITERALS
KEYWORD_KINDS = frozenset(WORDS.values())

PUNCTUATION = {
    "->": "ARROW",
    "**": "POWER",
    "//": "FLOOR",
    "==": "CMP",
    "!=": "CMP",
    "<=": "CMP",
    ">=": "CMP",
    "..": "REST",
    "<": "LESS",
    ">": "MORE",
    "+": "PLUS",
    "-": "MINUS",
    "*": "STAR",
    "/": "SLASH",
    "%": "MOD",
    ".": "DOT",
    ",": "COMMA",
    ":": "COLON",
    "=": "EQUAL",
    "@": "AT",
    "(": "LPAR",
    ")": "RPAR",
    "[": "LSQB",
    "]": "RSQB",
    "{": "LBRACE",
    "}": "RBRACE",
    ";": NL,
}


_MAX_SHOWN = 40


def clipped(text: str) -> str:
    """The text as a message shows it: its start if it is long."""
    return text if len(text) <= _MAX_SHOWN else text[: _MAX_SHOWN - 1] + "…"


class Token(NamedTuple):
    """Characters `start` up to, not including, `end`; an inserted token is empty."""

    kind: str
    start: int
    end: int
