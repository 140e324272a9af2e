"""Keys and values that go round the ranks instead of being gathered over cp.

The same conversion done another way (language.md 3.6): attention to divided keys computes what
attention to gathered ones does, and no rank ever has them all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from giantdsl.ir.nodes import (
    Call,
    Function,
    Op,
    Program,
    Repeat,
    Statement,
    Value,
    changed_statements,
    statements_of,
)
from giantdsl.ir.types import base_axis

_MESH = "cp"
_EXTRAS = frozenset({"keep", "document"})
"""What hides keys by their place. A bias has a gradient, and a mask rows of its own."""
_DIMS = 4


def with_rings(program: Program) -> Program:
    """The program with `ring` set on attention whose keys need not be gathered.

    What was gathered for it and is read by nobody else is gathered no more.
    """
    made: dict[int, Function] = {}

    def calling(statement: Statement) -> Statement:
        if isinstance(statement, Call):
            return replace(statement, function=made[id(statement.function)])
        return statement

    for function in program.functions:
        statements = changed_statements(function.statements, calling)
        made[id(function)] = _with_rings(replace(function, statements=statements))
    return replace(program, functions=list(made.values()))


def zigzag_axes(programs: Iterable[Program]) -> frozenset[str]:
    """The sequences of which half of the ring would wait under a causal mask, in plain order."""
    return frozenset(
        base_axis(str(op.attrs["t"]))
        for program in programs
        for function in program.functions
        for op in statements_of(function)
        if isinstance(op, Op) and op.attrs.get("ring") and op.attrs["causal"]
    )


def _with_rings(function: Function) -> Function:
    gathers = {
        id(op.result): op
        for op in statements_of(function)
        if isinstance(op, Op) and op.kind == "all_gather" and op.attrs["mesh"] == _MESH
    }
    if not gathers:
        return function

    def in_ring(statement: Statement) -> Statement:
        if not isinstance(statement, Op) or not _can_go_round(statement, gathers):
            return statement
        q, k, v, *extras = statement.inputs
        inputs = (q, gathers[id(k)].inputs[0], gathers[id(v)].inputs[0], *extras)
        return replace(statement, inputs=inputs, attrs={**statement.attrs, "ring": True})

    changed = replace(function, statements=changed_statements(function.statements, in_ring))
    read = _read(changed)

    def needed(statement: Statement) -> Statement | None:
        if not isinstance(statement, Op) or id(statement.result) not in gathers:
            return statement
        return statement if id(statement.result) in read else None

    return replace(changed, statements=changed_statements(changed.statements, needed))


def _can_go_round(op: Op, gathers: Mapping[int, Op]) -> bool:
    if op.kind != "sdpa" or len(op.inputs[0].type.axes) != _DIMS:
        return False
    extras = op.attrs["extras"]
    assert isinstance(extras, tuple)
    return set(extras) <= _EXTRAS and all(
        id(value) in gathers and gathers[id(value)].attrs["axis"] == value.type.axes[-3]
        for value in op.inputs[1:3]
    )


def _read(function: Function) -> set[int]:
    """The ids of all values that anything in a function reads."""
    values: list[Value | None] = [*function.results, *(value for _, value in function.losses)]
    for statement in statements_of(function):
        if isinstance(statement, Op | Call):
            values += statement.inputs
        elif isinstance(statement, Repeat):
            values += statement.inits
            for body in statement.bodies:
                values += [*body.yields, *(value for _, value in body.losses)]
    return {id(value) for value in values}
