"""What statements read, and the same statements reading other values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from giantdsl.ir.nodes import Body, Call, Op, Repeat, StageMark, Statement, Value, results_of


def reads_of(statement: Statement) -> list[Value]:
    """Every value from outside that a statement reads, each once; loops are entered."""
    found: dict[int, Value] = {}
    inside: set[int] = set()

    def visit(statement: Statement) -> None:
        if isinstance(statement, Op | Call):
            found.update((id(v), v) for v in statement.inputs if v is not None)
        elif isinstance(statement, Repeat):
            found.update((id(v), v) for v in statement.inits)
            for body in statement.bodies:
                inside.update(id(v) for v in body.params)
                for inner in body.statements:
                    visit(inner)
                    inside.update(id(v) for v in results_of(inner))
                ends = (*body.yields, *(v for _, v in body.losses))
                found.update((id(v), v) for v in ends)

    visit(statement)
    return [value for key, value in found.items() if key not in inside]


def with_reads(statement: Statement, others: Mapping[int, Value]) -> Statement:
    """The statement reading `others` (by id) instead, without stage marks in its loops."""

    def swap(values: Iterable[Value]) -> tuple[Value, ...]:
        return tuple(others.get(id(value), value) for value in values)

    if isinstance(statement, Op):
        return replace(statement, inputs=swap(statement.inputs))
    if isinstance(statement, Call):
        inputs = tuple(None if v is None else others.get(id(v), v) for v in statement.inputs)
        return replace(statement, inputs=inputs)
    if isinstance(statement, Repeat):
        bodies = tuple(
            Body(
                params=body.params,
                statements=[
                    with_reads(inner, others)
                    for inner in body.statements
                    if not isinstance(inner, StageMark)
                ],
                yields=swap(body.yields),
                losses=tuple((name, others.get(id(v), v)) for name, v in body.losses),
            )
            for body in statement.bodies
        )
        return replace(statement, bodies=bodies, inits=swap(statement.inits), every=0)
    return statement
