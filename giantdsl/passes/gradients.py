"""Which values a gradient flows into: those that depend on a weight."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from giantdsl.ir.nodes import Call, Function, Op, Program, Repeat, StageMark, Statement, Value
from giantdsl.ir.types import FLOAT, ROUTE


def values_with_gradient(program: Program, inputs: Iterable[Value] = ()) -> frozenset[int]:
    """ids of the values that depend on a weight, or on one of `inputs` (parameters of `forward`).

    A parameter of a block has a gradient if any use of the block gives it one.
    """
    found: set[int] = {id(value) for value in inputs}
    size = -1
    # Uses give parameters their gradient, so callers come first; a second round settles the rest.
    while size != len(found):
        size = len(found)
        for function in reversed(program.functions):
            _visit(function.statements, found)
    return frozenset(found)


def _visit(statements: Sequence[Statement], found: set[int]) -> None:
    for statement in statements:
        if isinstance(statement, Op):
            if statement.weights or _any(statement.inputs, found):
                _mark(statement.results, found)
        elif isinstance(statement, Call):
            for value, param in zip(statement.inputs, statement.function.params, strict=True):
                if value is not None and id(value) in found:
                    _mark([param], found)
            _mark_call(statement, found)
        elif isinstance(statement, Repeat):
            _visit_loop(statement, found)
        else:
            assert isinstance(statement, StageMark)


def _mark_call(call: Call, found: set[int]) -> None:
    function: Function = call.function
    made = (*function.results, *(value for _, value in function.losses))
    for value, inner in zip((*call.results, *call.losses), made, strict=True):
        if id(inner) in found:
            _mark([value], found)


def _visit_loop(loop: Repeat, found: set[int]) -> None:
    for body in loop.bodies:
        for init, param, end, result in zip(
            loop.inits, body.params, body.yields, loop.results, strict=True
        ):
            if id(init) in found or id(end) in found or id(param) in found:
                _mark([param, result], found)
        _visit(body.statements, found)
        for param, end, result in zip(body.params, body.yields, loop.results, strict=True):
            if id(end) in found:
                _mark([param, result], found)
        totals = dict(loop.losses)
        for name, value in body.losses:
            if id(value) in found:
                _mark([totals[name]], found)


def _any(values: Iterable[Value], found: set[int]) -> bool:
    return any(id(value) in found for value in values)


def _mark(values: Iterable[Value], found: set[int]) -> None:
    found.update(id(v) for v in values if v.type.dtype in (FLOAT, ROUTE))
