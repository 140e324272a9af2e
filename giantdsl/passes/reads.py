"""What a statement reads and makes, and the same statement reading other values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from giantdsl.ir.nodes import Body, Call, Op, Repeat, Statement, Value


def reads_of(statement: Statement) -> list[Value]:
    """Every value from outside that a statement reads, loops entered; each once."""
    found: dict[int, Value] = {}
    inner: set[int] = set()
    _visit(statement, found, inner)
    return [value for key, value in found.items() if key not in inner]


def _visit(statement: Statement, found: dict[int, Value], inner: set[int]) -> None:
    if isinstance(statement, Op | Call):
        found.update((id(v), v) for v in statement.inputs if v is not None)
    elif isinstance(statement, Repeat):
        found.update((id(v), v) for v in statement.inits)
        for body in statement.bodies:
            inner.update(id(v) for v in body.params)
            for nested in body.statements:
                _visit(nested, found, inner)
                inner.update(id(v) for v in results_of(nested))
            found.update((id(v), v) for v in body.yields)
            found.update((id(v), v) for _, v in body.losses)


def results_of(statement: Statement) -> tuple[Value, ...]:
    """Every value that a statement makes at its own level."""
    if isinstance(statement, Op):
        return statement.results
    if isinstance(statement, Call):
        return (*statement.results, *statement.losses)
    if isinstance(statement, Repeat):
        return (*statement.results, *(v for _, v in statement.losses))
    return ()


def replace_reads(statement: Statement, other: Mapping[int, Value]) -> Statement:
    """The statement with values swapped by id wherever it reads them."""
    if not other:
        return statement

    def swap(values: tuple[Value, ...]) -> tuple[Value, ...]:
        return tuple(other.get(id(v), v) for v in values)

    if isinstance(statement, Op):
        return replace(statement, inputs=swap(statement.inputs))
    if isinstance(statement, Call):
        inputs = tuple(None if v is None else other.get(id(v), v) for v in statement.inputs)
        return replace(statement, inputs=inputs)
    if isinstance(statement, Repeat):
        bodies = tuple(_swapped(body, other) for body in statement.bodies)
        return replace(statement, inits=swap(statement.inits), bodies=bodies)
    return statement


def _swapped(body: Body, other: Mapping[int, Value]) -> Body:
    return replace(
        body,
        statements=[replace_reads(s, other) for s in body.statements],
        yields=tuple(other.get(id(v), v) for v in body.yields),
        losses=tuple((name, other.get(id(v), v)) for name, v in body.losses),
    )
