"""Floating-point operations of one forward pass, counted on the program that runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from giantdsl.ir.nodes import Call, Function, Op, Program, Repeat, Statement
from giantdsl.ir.types import AxisKind, base_axis


def count_flops(program: Program) -> int:
    """Multiplications and additions of one sample, each counted: matrix products and attention.

    Sequences have their declared lengths; a causal mask does not make attention cheaper here.
    An expert layer counts the tokens that are sent to it, k of each. Loops are not expanded.
    """
    return flops_counter(program)(program.forward.statements)


def flops_counter(program: Program) -> Callable[[Sequence[Statement]], int]:
    """What counts statements of the program as `count_flops` does."""
    memo: dict[int, int] = {}
    choices = token_choices(program)

    def of_function(function: Function) -> int:
        if id(function) not in memo:
            memo[id(function)] = of_statements(function.statements)
        return memo[id(function)]

    def of_statements(statements: Sequence[Statement]) -> int:
        total = 0
        for statement in statements:
            if isinstance(statement, Op):
                total += op_flops(program, statement, choices)
            elif isinstance(statement, Call):
                total += of_function(statement.function)
            elif isinstance(statement, Repeat):
                each = [of_statements(body.statements) for body in statement.bodies]
                total += sum(each[variant] for variant in statement.pattern)
        return total

    return of_statements


def token_choices(program: Program) -> int:
    """Token-expert pairs of a sample in the ragged axes: tokens times the k of `topk`."""
    for function in program.functions:
        for statement in function.statements:
            if isinstance(statement, Op) and statement.kind == "topk":
                k = statement.attrs["k"]
                assert isinstance(k, int)
                return k * _size(program, statement.result.type.axes)
    return 0


def _size(program: Program, axes: Sequence[str]) -> int:
    """Elements along axes, one for a batch."""
    sizes = (program.axes[base_axis(axis)].extent for axis in axes)
    return math.prod(size for size in sizes if size is not None)


def op_flops(program: Program, op: Op, choices: int) -> int:
    if op.kind == "linear":
        use = op.weight("weight")
        assert use is not None
        axes = op.result.type.axes
        ragged = [a for a in axes if program.axes[base_axis(a)].kind is AxisKind.RAGGED]
        contracted, created = op.attrs["contracted"], op.attrs["created"]
        assert isinstance(contracted, tuple) and isinstance(created, tuple)
        into = _size(program, [str(a) for a in contracted])
        out = _size(program, [str(a) for a in created])
        if ragged:
            return 2 * choices * into * out
        rest = [a for a in axes if a not in created]
        return 2 * _size(program, rest) * into * out
    if op.kind == "sdpa":
        names = [str(op.attrs[key]) for key in ("s", "t", "heads")]
        pairs = _size(program, names)
        widths = _size(program, [str(op.attrs["c"])]) + _size(program, [str(op.attrs["e"])])
        return 2 * pairs * widths
    return 0
