"""How each operation wants its operands laid out (language.md 3.1 and 3.4)."""

from __future__ import annotations

from dataclasses import dataclass

from giantdsl.ir.nodes import Op, Program
from giantdsl.passes.layout import Rules

CONVERTED = ("cp", "tp")
"""Mesh axes on which values are converted, the slower one first.

On dp and ep the batch is divided from the start to the loss, and nothing ever puts it together.
"""

ROWS_INSIDE = frozenset({"cross_entropy", "z_loss", "mse", "load_balance"})
"""Operations that reduce over divided rows themselves: their result is whole."""

_KEYS = ("keep", "document")


@dataclass(frozen=True, slots=True)
class Need:
    """`axis` an operand has to be divided along, or None: whole.

    `partial`: the operation is divided along something else, so that each rank makes only a
    part of a whole operand's gradient.
    """

    axis: str | None
    partial: bool = False


def split_of(op: Op, mesh_axis: str, rules: Rules, program: Program) -> str | None:
    """The axis an operation is divided along on `mesh_axis`."""
    if op.kind == "rearrange" and rules.sizes[mesh_axis] > 1:
        both = set(op.inputs[0].type.axes) & set(op.result.type.axes)
        return rules.pick(mesh_axis, both)
    return rules.split(mesh_axis, op, program)


def need(op: Op, position: int, mesh_axis: str, split: str | None, rules: Rules) -> Need | None:
    """What the operand at `position` must be; None where it may stay as it is."""
    if op.kind in ("dispatch", "combine") and mesh_axis == "cp":
        # Tokens go to experts from where they are.
        return None
    if op.kind == "sdpa":
        return _attention_need(op, position, mesh_axis, split, rules)
    axes = op.inputs[position].type.axes
    if split is None:
        return Need(None)
    return Need(split) if split in axes else Need(None, partial=True)


def _attention_need(op: Op, position: int, mesh_axis: str, split: str | None, rules: Rules) -> Need:
    if split is None:
        return Need(None)
    axes = op.inputs[position].type.axes
    heads, kv = str(op.attrs["heads"]), str(op.attrs["kv"])
    extras = op.attrs["extras"]
    assert isinstance(extras, tuple)
    is_key = position in (1, 2) or (position > 2 and extras[position - 3] in _KEYS)
    if is_key and split == heads and kv in axes and kv in rules.listed[mesh_axis]:
        return Need(kv)
    if is_key and split == op.attrs["s"]:
        # Every query may look at every key.
        return Need(None, partial=True)
    return Need(split) if split in axes else Need(None, partial=True)
