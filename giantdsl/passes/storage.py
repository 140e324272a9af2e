"""How weights are stored, and over which mesh axes their gradients are partial sums.

A weight is stored divided along an axis if every operation that uses it is divided along that
axis; its gradient is summed over a mesh axis if some operation that uses it is divided there and
the weight is not (language.md 3.1 and 3.3).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from giantdsl.ir.nodes import Op, Program, Weight, WeightUse, statements_of
from giantdsl.ir.types import AxisKind, base_axis
from giantdsl.passes.layout import MESH_AXES, Rules
from giantdsl.passes.operands import split_of

Key = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class WeightLayout:
    """`split`: (axis, mesh axis) pairs of the axes stored divided.

    `sum_over`: mesh axes over which gradients are partial. `copied`: mesh axes on which some uses
    are divided and some are not, so that the divided ones sum their gradient themselves.
    """

    split: tuple[tuple[str, str], ...]
    sum_over: tuple[str, ...]
    copied: tuple[str, ...]

    def axis_of(self, mesh_axis: str) -> str | None:
        return next((a for a, m in self.split if m == mesh_axis), None)


def use_split(op: Op, use: WeightUse, mesh_axis: str, rules: Rules, program: Program) -> str | None:
    """Along what the use of a weight is divided; a bias joins the finished result."""
    if op.kind == "linear" and use.role == "bias":
        if rules.sizes[mesh_axis] == 1:
            return None
        return rules.layout(mesh_axis, op.result)
    return split_of(op, mesh_axis, rules, program)


def weight_layouts(program: Program, rules: Rules) -> dict[Key, WeightLayout]:
    """The layout of every weight of a program, by its key: see `weight_key`."""
    uses: dict[int, list[tuple[Op, WeightUse]]] = {}
    owners: dict[int, tuple[Key, Weight]] = {}
    for symbol, op, use in _uses(program):
        uses.setdefault(id(use.weight), []).append((op, use))
        if not use.tied:
            owners[id(use.weight)] = (weight_key(symbol, use.weight), use.weight)
    return {
        key: _layout(program, weight, uses[number], rules)
        for number, (key, weight) in owners.items()
    }


def weight_key(symbol: str, weight: Weight) -> Key:
    """What names a weight in whole programs and in those of stages alike."""
    return symbol, weight.member, weight.leaf


def owners_of(program: Program) -> dict[int, Key]:
    """By id of each weight of a program, its key."""
    held = {id(h.weight): weight_key(h.symbol, h.weight) for h in program.forward.holds}
    return held | {
        id(use.weight): weight_key(symbol, use.weight)
        for symbol, _, use in _uses(program)
        if not use.tied
    }


def _uses(program: Program) -> Iterator[tuple[str, Op, WeightUse]]:
    for function in program.functions:
        symbol = "" if function is program.forward else function.symbol
        for statement in statements_of(function):
            if isinstance(statement, Op):
                for use in statement.weights:
                    yield symbol, statement, use


def _layout(
    program: Program, weight: Weight, uses: list[tuple[Op, WeightUse]], rules: Rules
) -> WeightLayout:
    split: list[tuple[str, str]] = []
    sum_over: list[str] = []
    copied: list[str] = []
    for mesh_axis in MESH_AXES:
        if rules.sizes[mesh_axis] == 1:
            continue
        found = {use_split(op, use, mesh_axis, rules, program) for op, use in uses}
        axis = next(iter(found)) if len(found) == 1 else None
        if axis is not None and axis in weight.axes and _is_feature(program, axis):
            split.append((axis, mesh_axis))
        elif mesh_axis in ("dp", "ep"):
            # The shares of microbatches make every rank's loss a part of the sum, whatever it holds.
            sum_over.append(mesh_axis)
        elif found != {None}:
            (copied if None in found else sum_over).append(mesh_axis)
    return WeightLayout(tuple(split), tuple(sum_over), tuple(copied))


def _is_feature(program: Program, axis: str) -> bool:
    return program.axes[base_axis(axis)].kind is AxisKind.FEATURE
