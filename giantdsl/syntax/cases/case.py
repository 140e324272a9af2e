"""One kind of syntax error and what is said about it.

A case applies where one of its examples in `grammar/bad/` fails: in the same parser state, at a
token of the same kind (or of `kinds`). Cases with an `area` apply instead wherever an expression
is awaited, or has just ended. `when` narrows further. In the texts {shown} is the token as a
reader calls it; {token} {previous} {next} {head} are words of the spec, {head} the first one of
the statement; {near} is the nearest keyword.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from giantdsl.syntax import conditions as c

ANY = frozenset({"any"})
VALUES = frozenset(
    ["NAME", "NUMBER", "STRING", "TRUE", "FALSE", "NONE", "ONE_F_ONE_B", "LPAR", "NOT"]
)
OPERATORS = frozenset(
    ["PLUS", "MINUS", "STAR", "SLASH", "FLOOR", "MOD", "POWER", "CMP", "LESS", "MORE", "AND", "OR"]
)
ENDS = frozenset(["_NL", "$END", "RBRACE"])


class Area(Enum):
    BEFORE = "an expression is awaited"
    AFTER = "an expression has just ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """`kinds`: the tokens it is about; None for that of the example, ANY for every token.
    `on_head`: the first word of the statement is underlined, not the token.
    """

    name: str
    code: str
    message: str
    label: str
    help: str | None = None
    kinds: frozenset[str] | None = None
    area: Area | None = None
    when: c.Condition | None = None
    fix: c.Edit | None = None
    on_head: bool = False


BLOCK_SHAPE = "`block name(x[b, s, d]) -> [b, s, d] {{ … }}`"
