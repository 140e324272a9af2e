"""Values of numbers and strings."""

from __future__ import annotations

import math
import re

from giantdsl.diagnostics import Diagnostic, Label, Sink
from giantdsl.source import SourceFile
from giantdsl.syntax.tokens import Token

_SUFFIX = {"k": 3, "M": 6, "B": 9, "T": 12}
_ESCAPES = {'"': '"', "\\": "\\", "n": "\n", "t": "\t"}
_NUMBER = re.compile(r"[0-9][0-9_]*(\.[0-9]+)?([eE][+-]?[0-9]+)?[kMBT]?")
# Longer ones are typing accidents, and CPython refuses to read them past a few thousand digits.
_MAX_DIGITS = 100


def number_value(source: SourceFile, token: Token, sink: Sink) -> int | float:
    """`50_257`, `300B`, `3e-4`: an int without fraction and exponent, or with a suffix that
    makes it whole (`1.5M`). What does not fit a float is G013."""
    written = source.text[token.start : token.end]
    if _NUMBER.fullmatch(written) is None:
        return 0  # the lexer has said so
    text = written.replace("_", "")
    power = _SUFFIX.get(text[-1:], 0)
    digits = text[:-1] if power else text
    if len(digits) > _MAX_DIGITS:
        return _too_large(source, token, sink)
    if digits.isdigit():
        return int(digits) * int(10**power)
    value = float(f"{digits}e{power}" if power and "e" not in digits.lower() else digits)
    if power and "e" in digits.lower():
        value *= 10.0**power
    if math.isinf(value):
        return _too_large(source, token, sink)
    return int(value) if power and value.is_integer() else value


def _too_large(source: SourceFile, token: Token, sink: Sink) -> int:
    sink.add(
        Diagnostic(
            "G013",
            "this number is too large",
            Label(source.span(token.start, token.end), "no 64-bit number holds this"),
            "write it with an exponent or a suffix: `3e11`, `300B`",
        )
    )
    return 0


def string_value(source: SourceFile, token: Token, sink: Sink) -> str:
    r"""The text between the quotes with \" \\ \n \t read; any other escape is G012."""
    written = source.text[token.start : token.end]
    inner = written[1:-1]
    if "\\" not in inner or written[:1] != '"' or written[-1:] != '"':
        return inner  # other quotes, or none at the end: the lexer has said so

    def read(match: re.Match[str]) -> str:
        letter = match[1]
        if letter not in _ESCAPES:
            at = token.start + 1 + match.start()
            sink.add(
                Diagnostic(
                    "G012",
                    f"no escape `\\{letter}` in a string",
                    Label(source.span(at, at + 2), "means nothing"),
                    'a backslash itself is written `\\\\`; the others are `\\"`, `\\n` and `\\t`',
                )
            )
        return _ESCAPES.get(letter, letter)

    return re.sub(r"\\(.)", read, inner)
