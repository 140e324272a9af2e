"""How many spaces stand between two tokens of a line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from giantdsl.syntax.tokens import KEYWORD_KINDS, NL, Token

_TIGHT_BEFORE = frozenset({"RPAR", "RSQB", "COMMA", NL, "DOT", "AT", "TRANSPOSED"})
_TIGHT_AFTER = frozenset({"LPAR", "LSQB", "DOT", "AT"})
# Keywords with an operand of their own: `return (a + b)`, but `every(500)`, `forward(x)`.
_BEFORE_GROUP = frozenset({"RETURN", "IF", "REPEAT", "IN", "AND", "OR", "NOT", "ELSE"})
_ENDS_VALUE = frozenset(
    {"NAME", "NUMBER", "STRING", "RPAR", "RSQB", "ONE_F_ONE_B", "TRUE", "FALSE", "NONE"}
)
_HEADERS = frozenset({"BLOCK", "FORWARD", "EXTERN"})


@dataclass(slots=True)
class Context:
    """Where a token stands: the kinds of the open brackets and of the statement's first token."""

    brackets: list[str] = field(default_factory=list)
    depth: int = 0
    head: str = ""

    @property
    def is_header(self) -> bool:
        """In the head of a `block`, `forward` or `extern`, not in a call within it."""
        return self.depth == 0 and self.head in _HEADERS and len(self.brackets) <= 1

    def advance(self, kind: str) -> None:
        """Past a token."""
        if kind in (NL, "LBRACE", "RBRACE"):
            self.depth += {"LBRACE": 1, "RBRACE": -1}.get(kind, 0)
            self.head = ""
            return
        self.head = self.head or kind
        if kind in ("LPAR", "LSQB"):
            self.brackets.append(kind)
        elif kind in ("RPAR", "RSQB") and self.brackets:
            self.brackets.pop()


def spaces_before(tokens: Sequence[Token], i: int, context: Context) -> int:
    """Spaces between token `i - 1` and token `i` of one line; `context` is that before `i`."""
    kind, previous = tokens[i].kind, tokens[i - 1].kind
    if previous == NL:
        return 1 if kind == "RBRACE" else 2
    if kind in _TIGHT_BEFORE or previous in _TIGHT_AFTER:
        return 0
    if kind in ("LPAR", "LSQB") and _belongs_to(tokens, i, context):
        return 0
    if kind == "COLON":
        return 0
    if kind in ("EQUAL", "LESS", "MORE"):
        return _around(kind, context)
    if previous == "MINUS" and _is_sign(tokens, i - 1):
        return 0
    return _around(previous, context)


def _around(kind: str, context: Context) -> int:
    """Spaces beside a sign that is loose in some places and tight in others."""
    if kind == "EQUAL":
        return 1 if not context.brackets or context.is_header else 0
    if kind == "COLON":
        return 0 if context.brackets[-1:] == ["LSQB"] else 1
    if kind in ("LESS", "MORE"):
        return 0 if context.is_header and not context.brackets else 1
    return 1


def _belongs_to(tokens: Sequence[Token], i: int, context: Context) -> bool:
    """The bracket at `i` is that of a call, an index or axes, not of a group or a list."""
    previous = tokens[i - 1].kind
    if previous in ("NAME", "RPAR", "RSQB"):
        return True
    if previous == "MORE":
        return context.is_header
    if previous == "EVERY":
        return i < 2 or tokens[i - 2].kind != "STAGE"
    return previous in KEYWORD_KINDS and previous not in _BEFORE_GROUP


def _is_sign(tokens: Sequence[Token], i: int) -> bool:
    """The `-` at `i` has no value before it."""
    return i == 0 or tokens[i - 1].kind not in _ENDS_VALUE
