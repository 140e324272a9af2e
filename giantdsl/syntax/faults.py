"""What the parser knows at a token that cannot stand where it does."""

from __future__ import annotations

from dataclasses import dataclass

from giantdsl.diagnostics import Fix
from giantdsl.source import SourceFile, Span
from giantdsl.syntax.engine import Engine
from giantdsl.syntax.recovery import section_keyword
from giantdsl.syntax.tokens import END, NL, Token, clipped

_OPENS = frozenset({"LPAR", "LSQB"})
_CLOSES = frozenset({"RPAR", "RSQB"})


@dataclass(frozen=True, slots=True)
class Fault:
    """Token `at` cannot be read in the engine's state. `first` starts its statement."""

    engine: Engine
    at: int
    first: int

    @property
    def source(self) -> SourceFile:
        return self.engine.source

    @property
    def token(self) -> Token:
        return self.engine.token(self.at)

    @property
    def previous(self) -> Token:
        """The token before, an empty one at the start of the file."""
        return self.engine.token(self.at - 1) if self.at else Token(NL, 0, 0)

    @property
    def next(self) -> Token:
        return self.engine.token(self.at + 1)

    @property
    def head(self) -> Token:
        """The first token of the statement."""
        return self.engine.token(self.first)

    @property
    def state(self) -> int:
        return self.engine.states[-1]

    @property
    def section(self) -> str:
        """The kind of the keyword whose section this is; "" where it cannot be told."""
        return section_keyword(self.engine, self.engine.checkpoints[0].token)

    @property
    def bracket(self) -> str:
        """The kind of the innermost `(` or `[` of the statement still open; "" if none is."""
        opened: list[str] = []
        for index in range(self.first, self.at):
            kind = self.engine.token(index).kind
            if kind in _OPENS:
                opened.append(kind)
            elif kind in _CLOSES and opened:
                opened.pop()
        return opened[-1] if opened else ""

    @property
    def is_in_braces(self) -> bool:
        return len(self.engine.checkpoints) > 1

    @property
    def is_line_end(self) -> bool:
        return self.token.kind in (NL, END)

    def kinds(self, start: int, count: int) -> list[str]:
        """The kinds of `count` tokens from the `start`-th after this one (0: this one)."""
        return [self.engine.token(self.at + start + i).kind for i in range(count)]

    # ---- text and places --------------------------------------------------------------------

    def text(self, token: Token) -> str:
        return self.source.text[token.start : token.end]

    def place(self) -> Span:
        """What to underline. The end of a line has no width: the place just behind the last
        token stands for it, and so for the end of the file."""
        token = self.token
        if (token.end > token.start and token.kind != NL) or self.text(token) == ";":
            return self.source.span(token.start, token.end)
        end = self.previous.end
        return self.source.span(end, end)

    def head_place(self) -> Span:
        """The first word of the statement."""
        return self.source.span(self.head.start, self.head.end)

    def shown(self) -> str:
        """The token for a message."""
        token = self.token
        if token.kind == END:
            return "the end of the file" if self.engine.start == "start" else "the end"
        if token.kind == NL and self.text(token) != ";":
            return "the end of the line"
        return f"`{clipped(self.text(token))}`"

    # ---- edits ------------------------------------------------------------------------------

    def insert_before(self, text: str) -> Fix:
        return Fix(self.source.span(self.token.start, self.token.start), text)

    def insert_after_previous(self, text: str) -> Fix:
        return Fix(self.source.span(self.previous.end, self.previous.end), text)

    def replace(self, text: str) -> Fix:
        return Fix(self.source.span(self.token.start, self.token.end), text)

    def replace_previous(self, text: str) -> Fix:
        return Fix(self.source.span(self.previous.start, self.previous.end), text)
