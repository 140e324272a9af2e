"""Which axes a plan divides, and how."""

from __future__ import annotations

from collections.abc import Collection

from giantdsl.ir.nodes import Program, results_of, statements_of
from giantdsl.ir.types import AxisKind
from giantdsl.passes.layout import MESH_AXES, Rules
from giantdsl.plan import AxisSplit


def axis_splits(
    program: Program, rules: Rules, zigzag: Collection[str] = ()
) -> dict[str, AxisSplit]:
    """By axis, in the order of `dims`. Batches and tokens of experts are divided by what fills them.

    `zigzag`: the sequences that are to be divided so.
    """
    found: dict[str, AxisSplit] = {}
    written = _written(program)
    for name, axis in program.axes.items():
        mesh = tuple(
            m
            for m in MESH_AXES
            if rules.sizes[m] > 1 and (_divides(rules, m, name) or (name, m) in written)
        )
        if not mesh or axis.kind in (AxisKind.BATCH, AxisKind.RAGGED):
            continue
        assert axis.extent is not None and axis.size is not None, f"axis {name} has no size"
        is_sequence = axis.kind is AxisKind.SEQ
        found[name] = AxisSplit(
            name, mesh, axis.extent, axis.size, is_sequence, zigzag=name in zigzag
        )
    return found


def _written(program: Program) -> set[tuple[str, str]]:
    """Layouts of single values that the spec writes: `vocab@tp`."""
    values = [v for f in program.functions for v in (*f.params, *f.results)]
    for function in program.functions:
        for statement in statements_of(function):
            values += results_of(statement)
    return {pair for value in values for pair in value.type.at}


def _divides(rules: Rules, mesh_axis: str, axis: str) -> bool:
    return axis in rules.listed[mesh_axis] or rules.soft.get(mesh_axis) == axis
