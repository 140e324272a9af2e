"""The logical parameters of a program: names, shapes, counts."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from giantdsl.ir.nodes import Call, Function, Hold, Op, Program, Repeat, Statement, Weight
from giantdsl.ir.types import base_axis


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter under its logical name. `shape` is the plain module's, in elements."""

    name: str
    weight: Weight
    shape: tuple[int, ...]


def extent(program: Program, axis: str) -> int:
    """Number of meaningful elements along an axis with a static size."""
    size = program.axes[base_axis(axis)].extent
    assert size is not None, f"axis {axis} has no static size"
    return size


def stored_axes(weight: Weight) -> tuple[tuple[str, ...], ...]:
    """The axes that make up each dimension of a weight in the plain module: see `Weight`."""
    if weight.leaf == "":
        return tuple((axis,) for axis in weight.axes)
    per = tuple((axis,) for axis in weight.per)
    out, into = weight.out_axes, weight.in_axes
    if not into:
        return (*per, out)
    # Which group comes first in memory is the order of the axes.
    is_table = weight.axes[len(per) :][: len(out)] != out
    return (*per, into, out) if is_table else (*per, out, into)


def stored_shape(program: Program, weight: Weight) -> tuple[int, ...]:
    """The sizes of `stored_axes`, in elements."""
    return tuple(math.prod(extent(program, a) for a in axes) for axes in stored_axes(weight))


def iter_parameters(program: Program) -> Iterator[Parameter]:
    """Every owned parameter once, in order of use in the plain module. Loops are expanded here."""
    shapes: dict[int, tuple[int, ...]] = {}
    held = ((_held_name(hold), hold.weight) for hold in program.forward.holds)
    for name, weight in itertools.chain(held, _walk(program.forward, "")):
        shape = shapes.get(id(weight))
        if shape is None:
            shape = shapes[id(weight)] = stored_shape(program, weight)
        yield Parameter(name, weight, shape)


def count_parameters(program: Program) -> int:
    """Number of logical elements, ties counted once; does not expand loops."""
    held = sum(_elements(program, hold.weight) for hold in program.forward.holds)
    return held + parameter_counter(program)(program.forward.statements)


def _elements(program: Program, weight: Weight) -> int:
    return math.prod(extent(program, axis) for axis in weight.axes)


def parameter_counter(program: Program) -> Callable[[Sequence[Statement]], int]:
    """What counts the elements that statements of the program own."""
    counts: dict[int, int] = {}

    def of_function(function: Function) -> int:
        if id(function) not in counts:
            counts[id(function)] = of_statements(function.statements)
        return counts[id(function)]

    def of_statements(statements: Sequence[Statement]) -> int:
        return sum(of_statement(s) for s in statements)

    def of_statement(statement: Statement) -> int:
        if isinstance(statement, Op):
            owned = (use.weight for use in statement.weights if not use.tied)
            return sum(_elements(program, weight) for weight in owned)
        if isinstance(statement, Call):
            return of_function(statement.function)
        if isinstance(statement, Repeat):
            if statement.shared:
                return of_statements(statement.bodies[0].statements) if statement.bodies else 0
            each = [of_statements(body.statements) for body in statement.bodies]
            return sum(each[variant] for variant in statement.pattern)
        return 0

    return of_statements


def _held_name(hold: Hold) -> str:
    return join(*hold.path, hold.weight.member, hold.weight.leaf)


def iter_layers(program: Program) -> Iterator[tuple[str, Call, bool]]:
    """Every block used as a layer, by logical name, loops expanded.

    The flag: it stands in a loop that shares its weights, so the name comes once an iteration.
    """
    yield from _layers(program.forward.statements, "", "", False)


def _layers(
    statements: list[Statement], prefix: str, index: str, again: bool
) -> Iterator[tuple[str, Call, bool]]:
    for statement in statements:
        if isinstance(statement, Call):
            name = join(prefix, statement.member, index)
            yield name, statement, again
            yield from _layers(statement.function.statements, name, "", again)
        elif isinstance(statement, Repeat):
            for i, variant in zip(statement.indices, statement.pattern, strict=True):
                inner = index if statement.shared else join(index, str(i))
                body = statement.bodies[variant]
                yield from _layers(body.statements, prefix, inner, again or statement.shared)


def join(*parts: str) -> str:
    """A dotted name of the parts that are not empty."""
    return ".".join(part for part in parts if part)


def _walk(function: Function, prefix: str) -> Iterator[tuple[str, Weight]]:
    yield from _walk_statements(function.statements, prefix, "")


def _walk_statements(
    statements: list[Statement], prefix: str, index: str
) -> Iterator[tuple[str, Weight]]:
    for statement in statements:
        if isinstance(statement, Op):
            for use in statement.weights:
                if not use.tied:
                    yield join(prefix, use.weight.member, index, use.weight.leaf), use.weight
        elif isinstance(statement, Call):
            yield from _walk(statement.function, join(prefix, statement.member, index))
        elif isinstance(statement, Repeat):
            if statement.shared:
                yield from _walk_statements(statement.bodies[0].statements, prefix, index)
                continue
            for i, variant in zip(statement.indices, statement.pattern, strict=True):
                inner = join(index, str(i))
                yield from _walk_statements(statement.bodies[variant].statements, prefix, inner)
