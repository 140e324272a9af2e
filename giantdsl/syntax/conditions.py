"""Questions about a fault, and edits for it: the vocabulary of `cases.py`."""

from __future__ import annotations

from collections.abc import Callable

from giantdsl.diagnostics import Fix, nearest
from giantdsl.source import Span
from giantdsl.syntax.faults import Fault
from giantdsl.syntax.sections import SECTION_KINDS, is_statement_start
from giantdsl.syntax.tokens import KEYWORD_KINDS, NL, WORDS

Condition = Callable[[Fault], bool]
Edit = Callable[[Fault], Fix | None]

STATEMENT_KINDS = frozenset({"RETURN", "LOSS", "REPEAT", "IF", "STAGE", "SHARD"})
_SECTION_WORDS = tuple(word for word, kind in WORDS.items() if kind in SECTION_KINDS)
_STATEMENT_WORDS = ("return", "loss", "repeat", "if", "stage")
_TYPES = frozenset({"bool", "int", "float"})


# ---- conditions -----------------------------------------------------------------------------


def both(*conditions: Condition) -> Condition:
    return lambda fault: all(condition(fault) for condition in conditions)


def not_(condition: Condition) -> Condition:
    return lambda fault: not condition(fault)


def head_is(*kinds: str) -> Condition:
    return lambda fault: fault.head.kind in kinds


def head_word(*words: str) -> Condition:
    return lambda fault: fault.text(fault.head) in words


def section_is(*kinds: str) -> Condition:
    return lambda fault: fault.section in kinds


def previous_is(*kinds: str) -> Condition:
    return lambda fault: fault.previous.kind in kinds


def next_is(*kinds: str) -> Condition:
    return lambda fault: fault.next.kind in kinds


def bracket_is(*kinds: str) -> Condition:
    """The innermost open bracket of the statement; "" for none."""
    return lambda fault: fault.bracket in kinds


def word_is(*words: str) -> Condition:
    return lambda fault: fault.text(fault.token) in words


def is_keyword(fault: Fault) -> bool:
    return fault.token.kind in KEYWORD_KINDS


def awaits_equal(fault: Fault) -> bool:
    """A `=` is all that can come after the name, dots aside: no expression has ended here."""
    accepted = fault.engine.accepted()
    return "EQUAL" in accepted and "PLUS" not in accepted


def is_in_braces(fault: Fault) -> bool:
    return fault.is_in_braces


def is_before_equal(fault: Fault) -> bool:
    """No `=` in the statement yet."""
    tokens = fault.engine.tokens[fault.first : fault.at]
    return all(token.kind != "EQUAL" for token in tokens)


def starts_statement(fault: Fault) -> bool:
    """What stands here looks like a statement of its own."""
    if fault.token.kind in STATEMENT_KINDS:
        return True
    return fault.token.kind == "NAME" and is_statement_start(fault.engine.tokens, fault.at)


def names_argument(fault: Fault) -> bool:
    """`name=` stands here."""
    return fault.kinds(0, 2) == ["NAME", "EQUAL"]


def is_assigning_operator(fault: Fault) -> bool:
    """`+=` and the like: an operator glued to a `=`."""
    return fault.next.kind == "EQUAL" and fault.token.end == fault.next.start


def is_fraction(fault: Fault) -> bool:
    """`.5`"""
    return fault.next.kind == "NUMBER" and fault.token.end == fault.next.start


def is_at_head(fault: Fault) -> bool:
    """The statement has only its first token yet."""
    return fault.at == fault.first + 1


def is_misspelt_section(fault: Fault) -> bool:
    return nearest(fault.text(fault.token), _SECTION_WORDS) is not None


def is_misspelt_statement(fault: Fault) -> bool:
    return nearest(fault.text(fault.head), _STATEMENT_WORDS) is not None


def is_dtype(fault: Fault) -> bool:
    return fault.text(fault.token) in _TYPES


def is_plain_string(fault: Fault) -> bool:
    """A string that would be a name without its quotes."""
    return fault.token.kind == "STRING" and fault.text(fault.token)[1:-1].isidentifier()


def is_first_of_line(fault: Fault) -> bool:
    """Only spaces stand before the token on its line, and this is no first line."""
    text, start = fault.source.text, fault.token.start
    return fault.previous.kind != NL and "\n" in text[fault.previous.end : start]


def follows_line(fault: Fault) -> bool:
    """The line before has ended a statement."""
    return fault.previous.kind == NL and fault.text(fault.previous) not in ("", ";")


# ---- edits ----------------------------------------------------------------------------------


def insert(text: str) -> Edit:
    return lambda fault: fault.insert_before(text)


def append(text: str) -> Edit:
    """Right behind the token before."""
    return lambda fault: fault.insert_after_previous(text)


def replace(text: str) -> Edit:
    return lambda fault: fault.replace(text)


def replace_previous(text: str) -> Edit:
    return lambda fault: fault.replace_previous(text)


def give(fault: Fault) -> Fix:
    """`lr: 3` to `lr = 3`."""
    return Fix(Span(fault.source, fault.previous.end, fault.token.end), " =")


def give_argument(fault: Fault) -> Fix:
    """`lr: 3` to `lr=3`."""
    end = fault.token.end
    if not fault.source.text[end : fault.next.start].strip(" "):
        end = fault.next.start
    return Fix(Span(fault.source, fault.previous.end, end), "=")


def colon_to_equal(fault: Fault) -> Fix:
    """`d: 768` to `d = 768`; the token before is the colon."""
    before = fault.engine.token(fault.at - 2)
    return Fix(Span(fault.source, before.end, fault.previous.end), " =")


def spell_out(fault: Fault) -> Fix:
    """`x += y` to `x = x + y`."""
    operator = fault.text(fault.token)
    span = Span(fault.source, fault.token.start, fault.next.end)
    return Fix(span, f"= {fault.text(fault.head)} {operator}")


def unquote(fault: Fault) -> Fix | None:
    return fault.replace(fault.text(fault.token)[1:-1]) if is_plain_string(fault) else None


def nearest_section(fault: Fault) -> str:
    return nearest(fault.text(fault.token), _SECTION_WORDS) or ""


def nearest_statement(fault: Fault) -> str:
    return nearest(fault.text(fault.head), _STATEMENT_WORDS) or ""


def respell_section(fault: Fault) -> Fix:
    return fault.replace(nearest_section(fault))


def respell_statement(fault: Fault) -> Fix:
    span = Span(fault.source, fault.head.start, fault.head.end)
    return Fix(span, nearest_statement(fault))


def join_else(fault: Fault) -> Fix | None:
    """`}` newline `else` to `} else`."""
    if fault.first < 2 or fault.engine.token(fault.first - 2).kind != "RBRACE":
        return None
    start = fault.engine.token(fault.first - 2).end
    between = fault.source.text[start : fault.head.start]
    return Fix(Span(fault.source, start, fault.head.start), " ") if not between.strip() else None


def with_zero(fault: Fault) -> Fix:
    return fault.insert_before("0")


def drop_previous(fault: Fault) -> Fix:
    """Without the token before."""
    return Fix(Span(fault.source, fault.previous.start, fault.previous.end), "")
