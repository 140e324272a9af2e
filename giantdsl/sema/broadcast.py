"""Arithmetic between tensors and numbers: broadcasting goes by axis name."""

from __future__ import annotations

from giantdsl.attrs import Attr
from giantdsl.diagnostics import Diagnostic, Label
from giantdsl.ir.nodes import Count, Value
from giantdsl.ir.types import FLOAT, TensorType
from giantdsl.sema.scope import AxisArg, Frame, Sem, Tables, describe, shape
from giantdsl.sema.signature import emit_op
from giantdsl.source import Span

_KINDS = {"+": "add", "-": "sub", "*": "mul", "/": "div"}


def larger(left: tuple[str, ...], right: tuple[str, ...]) -> tuple[str, ...] | None:
    """The axes of the result: those of the operand that has all axes of the other, else None."""
    if set(right) <= set(left):
        return left
    return right if set(left) <= set(right) else None


def not_broadcastable(
    op: str, left: tuple[str, ...], right: tuple[str, ...], span: Span
) -> Diagnostic:
    only_left = "`, `".join(a for a in left if a not in right)
    only_right = "`, `".join(a for a in right if a not in left)
    between = op if op in _KINDS else "and"
    return Diagnostic(
        "G202",
        f"`{op}` needs one side to have all the axes of the other",
        Label(
            span,
            f"{shape(left)} {between} {shape(right)}: only the left has `{only_left}`, "
            f"only the right has `{only_right}`",
        ),
        "broadcasting goes by name and never adds axes on both sides; "
        "use expand(…) -> […] if you mean an outer product",
    )


def tensor_binary(tables: Tables, frame: Frame, op: str, left: Sem, right: Sem, span: Span) -> Sem:
    """`left op right` where at least one of them is a tensor."""
    left = left.size if isinstance(left, AxisArg) and left.size is not None else left
    right = right.size if isinstance(right, AxisArg) and right.size is not None else right
    for side in (left, right):
        if isinstance(side, AxisArg):
            tables.sink.add(unsized(side, span))
            return tables.poison(None, span)
        if isinstance(side, Value) and side.type.dtype != FLOAT:
            return _undefined(tables, op, left, right, span)
    if isinstance(left, Value) and isinstance(right, Value):
        return _two_tensors(tables, frame, op, left, right, span)
    tensor, number = (left, right) if isinstance(left, Value) else (right, left)
    assert isinstance(tensor, Value)
    if isinstance(number, bool) or not isinstance(number, int | float):
        return _undefined(tables, op, left, right, span)
    return _with_number(tables, frame, op, tensor, number, tensor is left, span)


def unsized(axis: AxisArg, span: Span) -> Diagnostic:
    return Diagnostic(
        "G203",
        f"the size of `{axis.name}` is not known before the model runs",
        Label(span, "needs a number"),
        "a batch axis and a dropless ragged axis have no size of their own",
    )


def negate(tables: Tables, frame: Frame, value: Value, span: Span) -> Sem:
    if value.type.dtype != FLOAT:
        tables.sink.add(
            Diagnostic(
                "G203", f"`-` is not defined for {value.type}", Label(span, "no float tensor")
            )
        )
        return tables.poison(value.type.axes, span)
    return _linear(tables, frame, "scale", value, -1.0, span)


def _two_tensors(
    tables: Tables, frame: Frame, op: str, left: Value, right: Value, span: Span
) -> Sem:
    if op not in _KINDS:
        return _undefined(tables, op, left, right, span)
    axes = larger(left.type.axes, right.type.axes)
    if axes is None:
        tables.sink.add(not_broadcastable(op, left.type.axes, right.type.axes, span))
        return tables.poison(None, span)
    means = [v for v in (left, right) if id(v) in tables.row_means]
    if means and (op in "*/" and (len(means) == 2 or (op == "/" and means[0] is right))):
        return _not_linear(tables, op, span)
    result = emit_op(tables, frame, _KINDS[op], [left, right], TensorType(axes), {}, span)
    if means:
        counts = [tables.row_means[id(v)] for v in means]
        if len(counts) == 2 and counts[0] != counts[1]:
            tables.sink.add(mixed_counts(span))
        tables.row_means[id(result)] = counts[0]
    return result


def mixed_counts(span: Span, first: Span | None = None) -> Diagnostic:
    return Diagnostic(
        "G227",
        "one loss mixes means over different counts",
        Label(span, "averaged over another count"),
        "give each its own `loss` line; the total is their sum",
        () if first is None else (Label(first, "the first mean"),),
    )


def _with_number(
    tables: Tables, frame: Frame, op: str, x: Value, number: float, tensor_first: bool, span: Span
) -> Sem:
    if op == "*":
        return _linear(tables, frame, "scale", x, number, span)
    if op == "+":
        return _linear(tables, frame, "shift", x, number, span)
    if op == "-":
        if tensor_first:
            return _linear(tables, frame, "shift", x, -number, span)
        negative = _linear(tables, frame, "scale", x, -1.0, span)
        assert isinstance(negative, Value)
        return _linear(tables, frame, "shift", negative, number, span)
    if op == "/" and tensor_first and number == 0:
        tables.sink.add(Diagnostic("G203", "division by zero", Label(span, "the divisor is 0")))
        return tables.poison(x.type.axes, span)
    if op == "/" and tensor_first:
        return _linear(tables, frame, "scale", x, 1.0 / number, span, divisor=number)
    if id(x) in tables.row_means:
        return _not_linear(tables, op, span)
    if op == "/" and not tensor_first:
        return emit_op(tables, frame, "rdiv", [x], x.type, {"by": number}, span)
    if op == "**" and tensor_first:
        return emit_op(tables, frame, "power", [x], x.type, {"by": number}, span)
    return _undefined(
        tables, op, x if tensor_first else number, number if tensor_first else x, span
    )


def _linear(
    tables: Tables,
    frame: Frame,
    kind: str,
    x: Value,
    by: float,
    span: Span,
    divisor: float | None = None,
) -> Sem:
    """An op that keeps a mean over the batch a mean over the batch."""
    attrs: dict[str, Attr] = {"by": by}
    if divisor is not None:
        attrs["divisor"] = divisor
    result = emit_op(tables, frame, kind, [x], TensorType(x.type.axes), attrs, span)
    if id(x) in tables.row_means:
        tables.row_means[id(result)] = tables.row_means[id(x)]
    return result


def _not_linear(tables: Tables, op: str, span: Span) -> Sem:
    tables.sink.add(
        Diagnostic(
            "G228",
            f"`{op}` of a mean over the batch",
            Label(span, "already averaged over the batch"),
            "only sums and multiples of such means do not depend on microbatches",
        )
    )
    return tables.poison(None, span)


def _undefined(tables: Tables, op: str, left: Sem, right: Sem, span: Span) -> Sem:
    tables.sink.add(
        Diagnostic(
            "G203",
            f"`{op}` is not defined for {describe(left)} and {describe(right)}",
            Label(span, "not defined"),
        )
    )
    return tables.poison(None, span)


def count_of(tables: Tables, value: Value) -> Count | None:
    return tables.row_means.get(id(value))
