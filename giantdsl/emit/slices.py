"""Divided axes and conversions in emitted code (docs/parallel.md)."""

from __future__ import annotations

from collections.abc import Sequence

from giantdsl.emit.code import Code
from giantdsl.emit.scope import Scope
from giantdsl.ir.nodes import Op, Value

_ROWS = ("cp", "tp")
"""Mesh axes over which operations reduce; on dp and ep the trainer adds up."""


def mesh_of(op: Op, axis: str) -> tuple[str, ...]:
    """The mesh axes that divide `axis` in this operation, the slowest first; () where it is whole.

    A batch axis is never among them: its rows are all there is, as far as a rank knows.
    """
    split = op.attrs.get("split", ())
    assert isinstance(split, tuple)
    found = [str(m) for m, a in (p for p in split if isinstance(p, tuple)) if a == axis]
    return tuple(m for m in ("cp", "ep", "tp") if m in found)


def slices(scope: Scope, op: Op, axis: str) -> str | None:
    """`self.axes.heads_tp` where the operation is divided along `axis`."""
    mesh = mesh_of(op, axis)
    return scope.slices(axis, mesh[-1]) if mesh and axis in scope.splits else None


def parts(scope: Scope, op: Op, value: Value) -> str:
    """`{1: self.axes.s_tp}`: the divided dimensions of an operand; "" where it is whole."""
    found = [(i, slices(scope, op, axis)) for i, axis in enumerate(value.type.axes)]
    items = ", ".join(f"{i}: {name}" for i, name in found if name is not None)
    return f"{{{items}}}" if items else ""


def row_groups(scope: Scope, op: Op, over: Sequence[str]) -> str:
    """`(self.axes.cp,)`: the groups over which rows are divided, that is anything but `over`."""
    split = op.attrs.get("split", ())
    assert isinstance(split, tuple)
    pairs = [(str(p[0]), p[1]) for p in split if isinstance(p, tuple)]
    groups = [scope.group(m) for m in _ROWS for n, axis in pairs if n == m and axis not in over]
    return f"({', '.join(groups)},)" if groups else ""


def convert(scope: Scope, op: Op) -> Code:
    """A conversion as a call of the runtime."""
    x = scope.code(op.inputs[0])
    return converted(scope, op.inputs[0], x, op.kind, str(op.attrs["mesh"]), op.attrs.get("axis"))


def converted(scope: Scope, value: Value, x: Code, kind: str, mesh_axis: str, axis: object) -> Code:
    if axis is None or axis == "":
        return Code(f"{kind}({x.text}, {scope.group(mesh_axis)})", x.reads)
    dim = value.type.axes.index(str(axis))
    text = f"{kind}({x.text}, {scope.slices(str(axis), mesh_axis)}, dim={dim})"
    return Code(text, x.reads)


def finished(scope: Scope, op: Op, y: Code) -> Code:
    """What an operation with a bias does to its partial result before the bias joins it."""
    steps = op.attrs.get("finish", ())
    assert isinstance(steps, tuple)
    for step in steps:
        assert isinstance(step, tuple)
        kind, mesh_axis, axis = (str(word) for word in step)
        y = converted(scope, op.result, y, kind, mesh_axis, axis)
    return y


CONVERSIONS = (
    "copy_to",
    "reduce_from",
    "all_gather",
    "gather_whole",
    "scatter",
    "reduce_scatter",
    "local",
)
