"""Tokens of the IR's text form, and the pieces that every line of it is made of."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NoReturn, TypeVar

from giantdsl.attrs import Attr, Config
from giantdsl.source import SourceFile, Span

WORDS = ("none", "true", "false")
_VALUES: dict[str, Attr] = {"none": None, "true": True, "false": False}

_TOKENS = re.compile(
    r"""\s+
    | (?P<line>;\ (?:"(?P<file>(?:[^"\\]|\\.)*)"\ )?(?P<at>\d+))
    | (?P<value>%[\w'.]+)
    | (?P<weight>@[\w'./]+(?:\#\d+)?)
    | (?P<string>"(?:[^"\\]|\\.)*")
    | (?P<number>-?\d+(?:\.\d*)?(?:e[+-]?\d+)?(?!\w))
    | (?P<word>\w+'?)
    | (?P<sign>->|[][(){},:=*.@])
    """,
    re.VERBOSE,
)
_T = TypeVar("_T")


class IrSyntaxError(ValueError):
    """The text is no IR. Says where and what was expected."""


class Tokens:
    """A place in a text, moved on by what is read."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[re.Match[str]] = []
        lines: dict[str | None, int] = {None: 1}
        at = 0
        while at < len(text):
            match = _TOKENS.match(text, at)
            if match is None:
                self._fail_at(at, f"`{text[at]}` means nothing here")
            at = match.end()
            if match["line"]:
                file = match["file"]
                lines[file] = max(lines.get(file, 1), int(match["at"]))
            if match.group().strip():
                self._tokens.append(match)
        self._at = 0
        self._lines = lines
        self._sources: dict[str | None, SourceFile] = {}

    @property
    def at_end(self) -> bool:
        return self._at >= len(self._tokens)

    def back(self) -> None:
        """One token back, so that a failure points at it."""
        self._at -= 1

    # ---- tokens ---------------------------------------------------------------------------

    def _fail_at(self, at: int, message: str) -> NoReturn:
        raise IrSyntaxError(f"line {self._text.count(chr(10), 0, at) + 1}: {message}")

    def fail(self, wanted: str) -> NoReturn:
        if self._at >= len(self._tokens):
            self._fail_at(len(self._text), f"expected {wanted}, found the end")
        token = self._tokens[self._at]
        self._fail_at(token.start(), f"expected {wanted}, found `{token.group()}`")

    def peek(self, ahead: int = 0) -> str:
        at = self._at + ahead
        return self._tokens[at].group() if at < len(self._tokens) else ""

    def accept(self, text: str) -> bool:
        found = self.peek() == text
        self._at += found
        return found

    def expect(self, text: str) -> None:
        if not self.accept(text):
            self.fail(f"`{text}`")

    def take(self, group: str, wanted: str) -> str:
        if self._at >= len(self._tokens) or self._tokens[self._at][group] is None:
            self.fail(wanted)
        self._at += 1
        return self._tokens[self._at - 1].group()

    def word(self, wanted: str = "a word") -> str:
        return self.take("word", wanted)

    def string(self) -> str:
        return _unquoted(self.take("string", "a string"))

    def whole(self) -> int:
        if not self.peek().lstrip("-").isdigit():
            self.fail("a whole number")
        return int(self.take("number", "a whole number"))

    def number(self) -> float:
        return float(self.take("number", "a number"))

    def listed(self, open: str, close: str, item: Callable[[], _T]) -> tuple[_T, ...]:
        """`[a, b]`, both brackets included."""
        self.expect(open)
        found: list[_T] = []
        while not self.accept(close):
            if found:
                self.expect(",")
            found.append(item())
        return tuple(found)

    def words(self) -> tuple[str, ...]:
        return self.listed("[", "]", self.word)

    def open_sources(self, main: str) -> SourceFile:
        """Stand-ins for the specs that spans point into: as many empty lines as are named."""
        for name, count in self._lines.items():
            shown = main if name is None else _unquoted(f'"{name}"')
            self._sources[name] = SourceFile(shown, "\n" * count)
        return self._sources[None]

    def span(self) -> Span:
        """The next `; line` from here on, as a span."""
        at = self._at
        while at < len(self._tokens) and not self._tokens[at]["line"]:
            at += 1
        if at == len(self._tokens):
            self.fail("`; line`")
        token = self._tokens[at]
        start = int(token["at"]) - 1
        return self._sources[token["file"]].span(start, start)

    def end_line(self) -> None:
        self.take("line", "`; line`")

    # ---- attributes -----------------------------------------------------------------------

    def pair(self) -> tuple[str, Attr]:
        key = self.word("a name")
        self.expect("=")
        return key, self.attr()

    def attr(self) -> Attr:
        if self.peek() == "[":
            return self.listed("[", "]", self.attr)
        if self.peek().startswith('"'):
            return self.string()
        if self._at < len(self._tokens) and self._tokens[self._at]["number"]:
            text = self.take("number", "a number")
            return int(text) if text.lstrip("-").isdigit() else float(text)
        word = self.word("a value")
        if self.peek() == "(":
            return self._config(word)
        return _VALUES.get(word, word)

    def _config(self, name: str) -> Config:
        args: list[Attr] = []
        kwargs: list[tuple[str, Attr]] = []

        def argument() -> None:
            if self.peek(1) == "=":
                kwargs.append(self.pair())
            else:
                args.append(self.attr())

        self.listed("(", ")", argument)
        return Config(name, tuple(args), tuple(kwargs))


def _unquoted(text: str) -> str:
    escapes = {"\\n": "\n", '\\"': '"', "\\\\": "\\"}
    return re.sub(r'\\[n"\\]', lambda m: escapes[m.group()], text[1:-1])
