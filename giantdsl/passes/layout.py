"""On each mesh axis the first listed axis wins, for values and for operations alike.

Layouts follow from the axes of a type, so no search and no unrolling is needed
(language.md section 3).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from giantdsl.ir.nodes import Op, Program, Value
from giantdsl.ir.types import FLOAT, AxisKind, base_axis
from giantdsl.settings.values import ParallelSettings

MESH_AXES = ("dp", "cp", "ep", "tp")
# What makes or reads integers and routes, which the soft axis does not divide.
_NEVER_SOFT = frozenset({"positions", "topk", "load_balance"})


@dataclass(frozen=True, slots=True)
class Rules:
    """The ordered list of axes of each mesh axis, its soft axis, and the sizes of the mesh."""

    sizes: dict[str, int]
    listed: dict[str, tuple[str, ...]]
    soft: dict[str, str] = field(default_factory=dict)

    def pick(self, mesh_axis: str, axes: Collection[str], soft: bool = True) -> str | None:
        """The first listed axis among `axes`, else the soft one, else None."""
        for axis in self.listed[mesh_axis]:
            if axis in axes:
                return axis
        other = self.soft.get(mesh_axis)
        return other if soft and other in axes else None

    def layout(self, mesh_axis: str, value: Value) -> str | None:
        """The axis a value is split along; None where it is whole."""
        if self.sizes[mesh_axis] == 1:
            return None
        written = next((a for a, m in value.type.at if m == mesh_axis), None)
        if written is not None:
            return written
        return self.pick(mesh_axis, value.type.axes, soft=value.type.dtype == FLOAT)

    def split(self, mesh_axis: str, op: Op, program: Program) -> str | None:
        """The axis an operation is split along, or None."""
        if self.sizes[mesh_axis] == 1:
            return None
        if op.kind in ("dispatch", "combine") and mesh_axis in ("tp", "cp", "ep"):
            slot = {str(op.attrs["slot"])}
            return self.pick(mesh_axis, slot, soft=False) if mesh_axis == "cp" else None
        return self.pick(mesh_axis, factors(op, program), soft=op.kind not in _NEVER_SOFT)


def rules_of(program: Program, parallel: ParallelSettings) -> Rules:
    """The rules of a plan: what is listed, after what goes without saying."""
    batch = tuple(a.name for a in program.axes.values() if a.kind is AxisKind.BATCH)
    ragged = tuple(a.name for a in program.axes.values() if a.kind is AxisKind.RAGGED)
    listed: dict[str, tuple[str, ...]] = {"dp": (*batch, *ragged), "ep": batch, "cp": (), "tp": ()}
    soft: dict[str, str] = {}
    for rule in parallel.shard:
        if rule.mesh_axis not in listed:
            continue
        listed[rule.mesh_axis] = (*listed[rule.mesh_axis], *rule.axes)
        if rule.otherwise is not None:
            soft[rule.mesh_axis] = rule.otherwise
    if listed["cp"]:
        listed["cp"] = (*listed["cp"], *ragged)
    sizes = {m: max(1, int(getattr(parallel, m))) for m in MESH_AXES}
    return Rules(sizes, listed, soft)


def factors(op: Op, program: Program) -> set[str]:
    """The axes an operation works along: of operands, result, weights, and what indices index."""
    if op.kind == "sdpa":
        # The key axis is summed inside the softmax: never a way to split.
        return {*op.result.type.axes, str(op.attrs["kv"]), str(op.attrs["c"])}
    found = {axis for result in op.results for axis in result.type.axes}
    for value in op.inputs:
        found.update(value.type.axes)
    if op.kind == "rename":
        # What changes its name is read whole.
        return found - {str(op.attrs["axis"]), str(op.attrs["to"])}
    stored = {axis for use in op.weights for axis in use.weight.axes}
    if op.kind in ("embedding", "relative_bias"):
        stored.add(str(op.attrs["index"]))
    # Rows of a table of positions are looked up whole: a sequence is divided in values only.
    found.update(a for a in stored if program.axes[base_axis(a)].kind is AxisKind.FEATURE)
    if op.kind == "cross_entropy":
        found.add(str(op.attrs["over"]))
    if op.kind in ("dispatch", "combine"):
        found = {a for a in found if program.axes[base_axis(a)].kind is not AxisKind.SEQ}
    return found
