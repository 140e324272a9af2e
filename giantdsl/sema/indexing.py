"""`x[s=0]`, `x[s=1:]`, `x[s as s']`."""

from __future__ import annotations

from collections.abc import Callable

from giantdsl.attrs import Attr
from giantdsl.diagnostics import Diagnostic, Label
from giantdsl.ir.nodes import Value
from giantdsl.ir.types import AxisKind, TensorType, base_axis
from giantdsl.sema.axes import resolve_axis
from giantdsl.sema.scope import Frame, Sem, Tables, shape
from giantdsl.sema.signature import emit_op
from giantdsl.source import Span
from giantdsl.syntax import ast

Number = Callable[[ast.Expr], int | None]


def index(
    tables: Tables,
    frame: Frame,
    value: Value,
    item: ast.Pick | ast.Slice | ast.Rename,
    number: Number,
    wanted: tuple[str, ...] | None,
) -> Sem:
    """One index. `number` evaluates a whole number (None after reporting); `wanted` are the
    axes the result was declared to have, which may name the axis a slice leaves."""
    axis = resolve_axis(tables, frame, item.axis)
    if axis is None:
        return tables.poison(None, item.span)
    if axis not in value.type.axes:
        has = ", ".join(value.type.axes) or "no axes"
        tables.sink.add(
            Diagnostic(
                "G206",
                f"{value.type} has no axis `{axis}`",
                Label(item.span, "not there"),
                f"it has {has}",
            )
        )
        return tables.poison(None, item.span)
    if tables.kind(axis) in (AxisKind.BATCH, AxisKind.RAGGED):
        tables.sink.add(
            Diagnostic(
                "G228",
                f"the {tables.kind_word(axis)} axis `{axis}` cannot be indexed or renamed",
                Label(item.span, "depends on how the batch is cut"),
            )
        )
        return tables.poison(None, item.span)
    if isinstance(item, ast.Pick):
        return _pick(tables, frame, value, axis, item, number)
    if isinstance(item, ast.Rename):
        return _rename(tables, frame, value, axis, item)
    return _slice(tables, frame, value, axis, item, number, wanted)


def _pick(
    tables: Tables, frame: Frame, value: Value, axis: str, item: ast.Pick, number: Number
) -> Sem:
    at = number(item.index)
    if at is None:
        return tables.poison(None, item.span)
    size = tables.axis(axis).extent or 0
    if not -size <= at < size:
        tables.sink.add(_outside(axis, size, at, item.index.span))
        return tables.poison(None, item.span)
    axes = tuple(a for a in value.type.axes if a != axis)
    type = TensorType(axes, value.type.dtype)
    return emit_op(tables, frame, "pick", [value], type, {"axis": axis, "at": at}, item.span)


def _rename(tables: Tables, frame: Frame, value: Value, axis: str, item: ast.Rename) -> Sem:
    to = resolve_axis(tables, frame, item.to)
    if to is None:
        return tables.poison(None, item.span)
    if tables.size(to) != tables.size(axis) or tables.kind(to) is not tables.kind(axis):
        tables.sink.add(
            Diagnostic(
                "G206",
                f"`{axis}` cannot be called `{to}`",
                Label(item.span, _difference(tables, axis, to)),
                f"`{base_axis(axis)}'` is another axis of the same size",
            )
        )
        return tables.poison(None, item.span)
    if to in value.type.axes:
        tables.sink.add(
            Diagnostic(
                "G208",
                f"axis `{to}` appears twice in one tensor",
                Label(item.to.span, f"{value.type} has it"),
                f"`{base_axis(axis)}'` is another axis of the same size",
            )
        )
        return tables.poison(None, item.span)
    axes = tuple(to if a == axis else a for a in value.type.axes)
    type = TensorType(axes, value.type.dtype)
    return emit_op(tables, frame, "rename", [value], type, {"axis": axis, "to": to}, item.span)


def _difference(tables: Tables, axis: str, to: str) -> str:
    if tables.kind(axis) is not tables.kind(to):
        return f"a {tables.kind_word(axis)} axis against a {tables.kind_word(to)} axis"
    return f"{tables.size(axis)} entries against {tables.size(to)}"


def _slice(
    tables: Tables,
    frame: Frame,
    value: Value,
    axis: str,
    item: ast.Slice,
    number: Number,
    wanted: tuple[str, ...] | None,
) -> Sem:
    size = tables.axis(axis).extent or 0
    start = 0 if item.start is None else number(item.start)
    stop = size if item.stop is None else number(item.stop)
    if start is None or stop is None:
        return tables.poison(None, item.span)
    start = start + size if start < 0 else start
    stop = stop + size if stop < 0 else stop
    if 0 <= stop <= start <= size:
        tables.sink.add(
            Diagnostic(
                "G206",
                f"`{item.span.text}` takes nothing",
                Label(item.span, f"from {start} up to, not including, {stop}"),
                f"`{axis}` has {size} entries, 0 to {size - 1}",
            )
        )
        return tables.poison(None, item.span)
    if not 0 <= start < stop <= size:
        tables.sink.add(_outside(axis, size, start if start >= size else stop, item.span))
        return tables.poison(None, item.span)
    to = _name_of_slice(tables, value, axis, start, stop, wanted)
    if to is None:
        tables.sink.add(_unnamed(tables, value, axis, stop - start, item.span))
        return tables.poison(None, item.span)
    axes = tuple(to if a == axis else a for a in value.type.axes)
    attrs: dict[str, Attr] = {
        "axis": axis,
        "start": start,
        "stop": None if item.stop is None else stop,
        "to": to,
    }
    type = TensorType(axes, value.type.dtype)
    return emit_op(tables, frame, "slice", [value], type, attrs, item.span)


def _name_of_slice(
    tables: Tables,
    value: Value,
    axis: str,
    start: int,
    stop: int,
    wanted: tuple[str, ...] | None,
) -> str | None:
    """The axis a slice leaves: itself, a term of a sum, or the one the target declares."""
    found = tables.axis(axis)
    if (start, stop) == (0, found.extent):
        return axis
    at = 0
    for term in found.terms:
        size = tables.axis(term).size or 0
        if (at, at + size) == (start, stop):
            return term
        at += size
    if wanted is None:
        return None
    fresh = [a for a in wanted if a not in value.type.axes]
    kept = [a for a in value.type.axes if a != axis]
    fits = len(fresh) == 1 and set(wanted) == {*kept, fresh[0]}
    if fits and tables.size(fresh[0]) == stop - start:
        return fresh[0] if tables.kind(fresh[0]) is found.kind else None
    return None


def _unnamed(tables: Tables, value: Value, axis: str, length: int, span: Span) -> Diagnostic:
    kind = tables.kind(axis)
    declared = f"t: {kind.value} = {length}" if kind is not AxisKind.FEATURE else f"t = {length}"
    shown = shape(tuple("t" if a == axis else a for a in value.type.axes))
    return Diagnostic(
        "G226",
        f"which axis is this part of `{axis}`?",
        Label(span, f"{length} of {tables.axis(axis).extent} entries"),
        f"declare it, `{declared}`, and name it left of `=`: `y{shown} = …`",
    )


def _outside(axis: str, size: int, at: int, span: Span) -> Diagnostic:
    return Diagnostic(
        "G206",
        f"`{axis}` has {size} entries",
        Label(span, f"{at} is outside"),
        f"indices go from 0 to {size - 1}, or from -{size} to -1",
    )
