"""Which axes a plan divides, and how."""

from __future__ import annotations

from giantdsl.ir.nodes import Program
from giantdsl.ir.types import AxisKind
from giantdsl.passes.layout import Rules
from giantdsl.plan import AxisSplit

_SLOWEST_FIRST = ("cp", "ep", "tp")


def axis_splits(program: Program, rules: Rules) -> dict[str, AxisSplit]:
    """By axis, in the order of `dims`. Batches and tokens of experts are divided by what fills them."""
    found: dict[str, AxisSplit] = {}
    for name, axis in program.axes.items():
        mesh = tuple(m for m in _SLOWEST_FIRST if rules.sizes[m] > 1 and _divides(rules, m, name))
        if not mesh or axis.kind in (AxisKind.BATCH, AxisKind.RAGGED):
            continue
        assert axis.extent is not None and axis.size is not None, f"axis {name} has no size"
        is_sequence = axis.kind is AxisKind.SEQ
        found[name] = AxisSplit(name, mesh, axis.extent, axis.size, is_sequence)
    return found


def _divides(rules: Rules, mesh_axis: str, axis: str) -> bool:
    return axis in rules.listed[mesh_axis] or rules.soft.get(mesh_axis) == axis
