"""Expressions of the emitted language with what is needed to put them together."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

ATOM, POWER, UNARY, PRODUCT, SUM, COMPARE = range(6)

_SIMPLE = re.compile(r"-?[\w.]+")


@dataclass(frozen=True, slots=True)
class Code:
    """Text of an expression, the variables it reads, and how loosely its operator binds."""

    text: str
    reads: frozenset[str] = frozenset()
    level: int = ATOM

    def within(self, level: int) -> str:
        """The text, in parentheses where an operator of this level would take it apart."""
        return f"({self.text})" if self.level > level else self.text

    @property
    def is_name(self) -> bool:
        return self.text.isidentifier()


def variable(name: str) -> Code:
    return Code(name, frozenset({name}))


def reads_of(codes: Iterable[Code]) -> frozenset[str]:
    return frozenset().union(*(code.reads for code in codes))


def method(x: Code, call: str) -> Code:
    """`x.call`."""
    return Code(f"{x.within(ATOM)}.{call}", x.reads)


def binary(left: Code, sign: str, right: Code, level: int) -> Code:
    """`left sign right`; the right side of `-` and `/` binds tighter."""
    inner = level - 1 if sign in "-/" else level
    text = f"{left.within(level)} {sign} {right.within(inner)}"
    return Code(text, left.reads | right.reads, level)


def power(base: Code, exponent: object) -> Code:
    """`x**2`, with the spaces ruff wants around operands that are not simple."""
    text = base.within(ATOM)
    simple = _SIMPLE.fullmatch(text) is not None
    return Code(f"{text}**{exponent!r}" if simple else f"{text} ** {exponent!r}", base.reads, POWER)
