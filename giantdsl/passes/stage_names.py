"""What stages and their values are called, for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from giantdsl.ir.nodes import Call, Function, Op, Repeat, Statement, Value, all_statements


def made_name(maker: Statement, value: Value) -> str:
    """The user's name of a value, else that of the layer or the operation that makes it."""
    if value.name or value.alias:
        return value.name or value.alias
    if isinstance(maker, Call):
        return maker.member
    return (maker.layer or maker.kind) if isinstance(maker, Op) else "h"


def layers_text(function: Function) -> str:
    """The layers of a stage in order: `tok, pos, decoder 0..5`."""
    words = dict.fromkeys(_words(function.statements))
    return ", ".join(words) or "no layers"


def _words(statements: Sequence[Statement]) -> Iterator[str]:
    for statement in statements:
        if not isinstance(statement, Repeat):
            yield from _layers([statement])
            continue
        ends = f"{statement.first}..{statement.indices.stop - 1}"
        span = ends if statement.count > 1 else str(statement.first)
        for body in statement.bodies:
            for name in _layers(body.statements):
                yield f"{name} {span}"


def _layers(statements: Sequence[Statement]) -> Iterator[str]:
    """Names of the layers, those in loops without their indices."""
    for statement in all_statements(statements):
        if isinstance(statement, Call):
            yield statement.member
        elif isinstance(statement, Op) and statement.layer:
            yield statement.layer
