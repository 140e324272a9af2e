"""The tokens a state can read, in words."""

from __future__ import annotations

from collections.abc import Iterable

from giantdsl.syntax.tokens import END, NL, PUNCTUATION, WORDS

_SIGNS = {kind: sign for sign, kind in PUNCTUATION.items() if kind not in (NL, "CMP")}
_WORDS = {kind: word for word, kind in WORDS.items()}

# Groups that are one thing to a reader, the larger first.
_GROUPS: tuple[tuple[str, frozenset[str]], ...] = (
    (
        "a section",
        frozenset(
            [
                "MODEL",
                "IMPORT",
                "DIMS",
                "DEFAULT",
                "BLOCK",
                "EXTERN",
                "FORWARD",
                "PARALLEL",
                "TRAIN",
                "WEIGHTS",
                "PROFILE",
            ]
        ),
    ),
    ("a statement", frozenset(["NAME", "RETURN", "LOSS", "REPEAT", "IF", "STAGE"])),
    ("`shard` or a setting", frozenset(["NAME", "SHARD"])),
    (
        "an expression",
        frozenset(
            [
                "NAME",
                "NUMBER",
                "STRING",
                "TRUE",
                "FALSE",
                "NONE",
                "ONE_F_ONE_B",
                "LPAR",
                "LSQB",
                "MINUS",
                "NOT",
            ]
        ),
    ),
    (
        "a value",
        frozenset(
            [
                "NAME",
                "NUMBER",
                "STRING",
                "TRUE",
                "FALSE",
                "NONE",
                "ONE_F_ONE_B",
                "LPAR",
                "LSQB",
                "MINUS",
            ]
        ),
    ),
    (
        "a value",
        frozenset(
            ["NAME", "NUMBER", "STRING", "TRUE", "FALSE", "NONE", "ONE_F_ONE_B", "LPAR", "LSQB"]
        ),
    ),
    (
        "an operator",
        frozenset(
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
            ]
        ),
    ),
    (
        "an operator",
        frozenset(
            ["PLUS", "MINUS", "STAR", "SLASH", "FLOOR", "MOD", "CMP", "LESS", "MORE", "AND", "OR"]
        ),
    ),
    ("an operator", frozenset(["PLUS", "MINUS", "CMP", "LESS", "MORE", "AND", "OR"])),
    ("an operator", frozenset(["CMP", "LESS", "MORE", "AND", "OR"])),
    ("an operator", frozenset(["AND", "OR"])),
)
_NAMED = {
    "NAME": "a name",
    "STRING": "a string in double quotes",
    "NUMBER": "a number",
    "TRANSPOSED": "`.T`",
    "ONE_F_ONE_B": "`1f1b`",
    "CMP": "a comparison",
    NL: "a new line",
    END: "the end",
}


def in_words(kinds: Iterable[str]) -> str:
    """`an operator, `,` or a new line`."""
    left = dict.fromkeys(kinds)
    words: list[str] = []
    for word, group in _GROUPS:
        if group <= left.keys():
            words.append(word)
            for kind in group:
                del left[kind]
    if NL in left:
        left.pop(END, None)
    words += sorted(_word(kind) for kind in left)
    if len(words) > 1:
        return ", ".join(words[:-1]) + " or " + words[-1]
    return words[0]


def _word(kind: str) -> str:
    if kind in _NAMED:
        return _NAMED[kind]
    return f"`{_SIGNS.get(kind) or _WORDS[kind]}`"
