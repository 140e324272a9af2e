"""What the lexer does not know: malformed numbers and strings, characters of other languages.

Where the meaning is plain the right token takes its place, so that one slip is one message.
"""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING

from giantdsl.diagnostics import Diagnostic, Fix, Label, Sink
from giantdsl.source import SourceFile, Span
from giantdsl.syntax.tokens import NL, PUNCTUATION, Token, clipped

if TYPE_CHECKING:
    from giantdsl.syntax.lexer import Lexed

_NUMBER = re.compile(r"\d(?:[eE][+-](?=\d)|[\w.])*")
_NAME = re.compile(r"[^\W\d]\w*'?")
_OPEN_STRING = re.compile(r'"[^\r\n]*')
_SINGLE_QUOTED = re.compile(r"'([^'\r\n]*)'")
_CURLY_QUOTED = re.compile("[“”„‟«]([^“”„‟«»\"\r\n]*)[“”‟»\"]|[‘’‚‛]([^‘’‚‛'\r\n]*)[‘’‛']")
_CONTINUED = re.compile(r"\\[ \t]*(?:\r?\n|\Z)")

# How other languages, and text processors, write it: (what it is called, what to write).
_FOREIGN = {
    ":=": ("no operator", "="),
    "=>": ("no operator", "->"),
    "...": ("no operator", ".."),
    "&&": ("no operator", "and"),
    "||": ("no operator", "or"),
    "!": ("no operator", "not"),
    "&": ("no operator", "and"),
    "|": ("no operator", "or"),
    "−": ("a typographic minus", "-"),
    "–": ("a typographic dash", "-"),
    "—": ("a typographic dash", "-"),
    "‐": ("a typographic hyphen", "-"),
    "×": ("a typographic times sign", "*"),
    "·": ("a typographic dot", "*"),
    "÷": ("a typographic division sign", "/"),
    "→": ("a typographic arrow", "->"),
    "⇒": ("a typographic arrow", "->"),
    "≤": ("a typographic sign", "<="),
    "≥": ("a typographic sign", ">="),
    "≠": ("a typographic sign", "!="),
    "…": ("a typographic ellipsis", ".."),
}
_INVISIBLE = frozenset("\u00ad\u200b\u200c\u200d\u200e\u200f\u2060\ufeff")


class Oddities:
    """Reads one oddity at a time; repeated spaces are gathered and reported once, at the end."""

    def __init__(self, source: SourceFile, lexed: Lexed, sink: Sink) -> None:
        self._source = source
        self._text = source.text
        self._lexed = lexed
        self._sink = sink
        self._spaces: dict[str, list[Fix]] = {}

    def read(self, at: int) -> int:
        """Reports what stands at `at`; the offset after it."""
        char = self._text[at]
        if char.isdigit() and char.isascii():
            return self._number(at)
        if char == '"':
            return self._unclosed_string(at)
        quoted = _SINGLE_QUOTED.match(self._text, at) or _CURLY_QUOTED.match(self._text, at)
        if quoted and self._text[at - 1 : at] != "'":
            return self._quoted(quoted)
        if char.isspace() or char in _INVISIBLE:
            return self._space(at, char)
        if continued := _CONTINUED.match(self._text, at):
            return self._backslash(at, continued.end())
        for sign in (self._text[at : at + 3], self._text[at : at + 2], char):
            if sign in _FOREIGN:
                return self._foreign(at, sign)
        if named := _NAME.match(self._text, at):
            return self._name(at, named.end())
        return self._character(at, char)

    def finish(self) -> None:
        for char, fixes in self._spaces.items():
            self._report_spaces(char, fixes)

    # ---- helpers ----------------------------------------------------------------------------

    def _span(self, start: int, end: int) -> Span:
        return self._source.span(start, end)

    def _put(self, kind: str, start: int, end: int) -> int:
        self._lexed.tokens.append(Token(kind, start, end))
        return end

    def _report(
        self, code: str, message: str, span: Span, label: str, help: str, fix: str | None = None
    ) -> None:
        fixes = () if fix is None else (Fix(span, fix),)
        self._lexed.faults.append(span.start)
        self._sink.add(Diagnostic(code, message, Label(span, label), help, fixes=fixes))

    # ---- numbers and names ------------------------------------------------------------------

    def _number(self, at: int) -> int:
        if self._lexed.tokens and self._lexed.tokens[-1] == Token("DOT", at - 1, at):
            return self._index(at)
        found = _NUMBER.match(self._text, at)
        end = found.end() if found else at + 1
        text = self._text[at:end]
        label, help, fix = _number_help(clipped(text))
        self._report(
            "G013",
            f"`{clipped(text)}` is not a number",
            self._span(at, end),
            label,
            help,
            fix,
        )
        return self._put("NUMBER", at, end)

    def _index(self, at: int) -> int:
        """`decoder.0.norm`: the regular expression of numbers takes `0.norm` for a bad one."""
        end = at
        while self._text[end : end + 1].isdigit():
            end += 1
        self._report(
            "G027",
            "a layer's index is written `*`",
            self._span(at, end),
            "no numbers here",
            'write `decoder.* = "transformer.h.*" { … }` for all of them',
        )
        return self._put("NAME", at, end)

    def _name(self, at: int, end: int) -> int:
        word = self._text[at:end]
        self._report(
            "G014",
            f"`{clipped(word)}` is not a name",
            self._span(at, end),
            "a letter outside A to Z",
            "names are made of the letters A to Z and a to z, digits and `_`",
        )
        return self._put("NAME", at, end)

    # ---- strings ----------------------------------------------------------------------------

    def _unclosed_string(self, at: int) -> int:
        found = _OPEN_STRING.match(self._text, at)
        end = found.end() if found else at + 1
        self._lexed.swallowed.append(at)
        self._report(
            "G011",
            "a string is never closed",
            self._span(at, end),
            "opened here, and the line ends",
            'add the missing `"`; a string stays on one line',
        )
        return self._put("STRING", at, end)

    def _quoted(self, quoted: re.Match[str]) -> int:
        inner = next((group for group in quoted.groups() if group is not None), "")
        start, end = quoted.span()
        is_plain = "\\" not in inner and '"' not in inner
        self._report(
            "G011",
            "a string stands in double quotes",
            self._span(start, end),
            "other quotes",
            f'write `"{clipped(inner)}"`',
            f'"{inner}"' if is_plain else None,
        )
        return self._put("STRING", start, end)

    # ---- spaces and signs -------------------------------------------------------------------

    def _space(self, at: int, char: str) -> int:
        if char in "\r\v\x85\u2028\u2029\x1c\x1d\x1e":
            replacement = "\n"
            if not self._lexed.tokens or self._lexed.tokens[-1].kind != NL:
                self._put(NL, at, at + 1)
        else:
            replacement = "" if char in _INVISIBLE else " "
        self._spaces.setdefault(char, []).append(Fix(self._span(at, at + 1), replacement))
        return at + 1

    def _report_spaces(self, char: str, fixes: list[Fix]) -> None:
        first = fixes[0]
        what = _described(char)
        wanted = {"\n": "a plain line break", " ": "a plain space", "": "nothing"}[first.text]
        many = f", the first of {len(fixes)}" if len(fixes) > 1 else ""
        self._sink.add(
            Diagnostic(
                "G014",
                f"{what} is not a character of the language",
                Label(first.span, f"invisible here{many}"),
                f"put {wanted} in its place; it often comes with text copied from a web page",
                fixes=tuple(fixes),
            )
        )

    def _backslash(self, at: int, end: int) -> int:
        self._report(
            "G014",
            "no `\\` at the end of a line",
            self._span(at, at + 1),
            "not needed",
            "a line goes on inside ( ) and [ ], and after an operator, `,`, `=` or `->`",
            "",
        )
        return end

    def _foreign(self, at: int, sign: str) -> int:
        what, wanted = _FOREIGN[sign]
        end = at + len(sign)
        is_word = wanted.isalpha()
        self._report(
            "G015",
            f"`{sign}` is {what} of the language"
            if what == "no operator"
            else f"`{sign}` is {what}",
            self._span(at, end),
            f"`{wanted}`?",
            f"write `{wanted}`",
            self._spaced(at, end, wanted) if is_word else wanted,
        )
        return self._put(wanted.upper() if is_word else PUNCTUATION[wanted], at, end)

    def _spaced(self, at: int, end: int, word: str) -> str:
        before = " " if self._text[at - 1 : at].isalnum() else ""
        after = " " if not self._text[end : end + 1].isspace() else ""
        return f"{before}{word}{after}"

    def _character(self, at: int, char: str) -> int:
        wanted = unicodedata.normalize("NFKC", char)
        if wanted in PUNCTUATION:
            self._report(
                "G014",
                f"`{char}` is a wide `{wanted}`",
                self._span(at, at + 1),
                f"`{wanted}`?",
                f"write `{wanted}`",
                wanted,
            )
            return self._put(PUNCTUATION[wanted], at, at + 1)
        if char == "'":
            help = "another axis of the same size has one prime right after its name: `s'`"
        else:
            help = "remove it; text in a spec is a comment after `#` or a string in double quotes"
        self._report(
            "G014",
            f"{_described(char)} is not a character of the language",
            self._span(at, at + 1),
            "means nothing here",
            help,
        )
        return at + 1


def _described(char: str) -> str:
    if char.isascii() and char.isprintable():
        return f"`{char}`"
    name = unicodedata.name(char, "").lower()
    return f"U+{ord(char):04X}" + (f" ({name})" if name else "")


def _number_help(text: str) -> tuple[str, str, str | None]:
    """For a malformed number: what is wrong, what to write, and the edit if it is certain."""
    if re.fullmatch(r"\d[\d_]*\.", text):
        return "digits are missing after the point", f"write `{text}0`", f"{text}0"
    if suffixed := re.fullmatch(r"(\d[\d_]*(?:\.\d+)?)([KmbtgG])", text):
        wanted = {"K": "k", "m": "M", "b": "B", "t": "T", "g": "B", "G": "B"}[suffixed[2]]
        help = f"write `{suffixed[1]}{wanted}`; the suffixes are k, M, B and T"
        return f"`{suffixed[2]}` is no suffix", help, None
    product = re.fullmatch(r"(\d[\d_]*(?:\.\d+)?)([A-Za-z_][A-Za-z0-9_]*)", text)
    if product and not re.fullmatch(r"0[xXbBoO]\w*", text):
        help = f"multiplication is written out: `{product[1]} * {product[2]}`"
        return "a number or a name?", help, None
    help = "numbers are written like `1024`, `50_257`, `0.1`, `3e-4` or `300B`"
    return "not written like a number", help, None
