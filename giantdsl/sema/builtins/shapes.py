"""Shapes: rearrange, concat, expand. (`x[s=0]` and its kin are in `indexing.py`.)"""

from __future__ import annotations

from collections import Counter

from giantdsl.attrs import Attr
from giantdsl.ir.types import AxisKind, base_axis
from giantdsl.sema.builtins.base import Builtin
from giantdsl.sema.scope import Sem, Tables, shape
from giantdsl.sema.signature import BuiltinCall, Param, Signature


def _expanded(tables: Tables, axes: tuple[str, ...]) -> tuple[str, ...]:
    """Axes with products replaced by their factors."""
    found: list[str] = []
    for axis in axes:
        prime = "'" if axis.endswith("'") else ""
        found += [f + prime for f in tables.axis(axis).factors] or [axis]
    return tuple(found)


def _rearrange(call: BuiltinCall) -> Sem:
    assert call.axes is not None
    x = call.tensor("x")
    source, target = _expanded(call.tables, x.type.axes), _expanded(call.tables, call.axes)
    if Counter(source) != Counter(target):
        return call.fail(
            "G224",
            "`rearrange` must keep every element",
            f"from ({' '.join(source)}) to ({' '.join(target)})",
            "axes split and merge along products in `dims`, e.g. `h = ny * py`",
        )
    attrs: dict[str, Attr] = {"source": source, "target": target}
    return call.emit("rearrange", [x], call.axes, attrs, dtype=x.type.dtype)


def _expand(call: BuiltinCall) -> Sem:
    assert call.axes is not None
    x = call.tensor("x")
    lost = [a for a in x.type.axes if a not in call.axes]
    if lost:
        return call.fail(
            "G201",
            f"`expand` keeps the axes of {x.type}",
            f"`{lost[0]}` is missing here",
            span=call.axes_span,
        )
    for axis in call.axes:
        unsized = call.tables.kind(axis) in (AxisKind.BATCH, AxisKind.RAGGED)
        if axis not in x.type.axes and unsized:
            return call.fail(
                "G221",
                f"`expand` cannot make the {call.tables.kind_word(axis)} axis `{axis}`",
                "no size is known here",
                "add a tensor that has this axis instead",
                call.axes_span,
            )
    return call.emit("expand", [x], call.axes, dtype=x.type.dtype)


def _concat(call: BuiltinCall) -> Sem:
    along = call.axis("along")
    axis = call.tables.axis(along)
    if len(axis.terms) < 2 or along.endswith("'"):
        return call.fail(
            "G225",
            f"`concat` makes an axis that is a sum, `{along}` is none",
            "not a sum of axes",
            f"declare it in `dims`: `{base_axis(along)} = a + b`",
            call.span_of("along"),
        )
    if len(call.tensors) != len(axis.terms):
        return call.fail(
            "G225",
            f"`{along}` is a sum of {len(axis.terms)} axes, {len(call.tensors)} tensors are given",
            f"{along} = {' + '.join(axis.terms)}",
        )
    others: list[str] = []
    for tensor, term in zip(call.tensors, axis.terms, strict=True):
        if term not in tensor.type.axes:
            return call.fail(
                "G225",
                f"`concat` along `{along}` takes [.., {term}, ..] here",
                f"this is {tensor.type}",
                f"{along} = {' + '.join(axis.terms)}, in this order",
            )
        if tensor.type.dtype != call.tensors[0].type.dtype:
            return call.fail("G231", "`concat` of different types", f"this is {tensor.type}")
        others += [a for a in tensor.type.axes if a != term and a not in others]
    wanted = {along, *others}
    axes = call.axes
    if axes is None:
        widest = max(call.tensors, key=lambda t: len(t.type.axes))
        axes = tuple(along if a in axis.terms else a for a in widest.type.axes)
    if set(axes) != wanted:
        return call.fail(
            "G201",
            f"expected {shape(axes)}, found {shape((along, *others))}",
            f"`concat` along `{along}` gives {shape((along, *others))}",
            span=call.axes_span,
        )
    attrs: dict[str, Attr] = {"along": along, "parts": axis.terms}
    return call.emit("concat", list(call.tensors), axes, attrs, dtype=call.tensors[0].type.dtype)


TENSOR = Param("x", "tensor")
SHAPES = (
    Builtin(Signature("rearrange", (TENSOR,), result="required"), _rearrange),
    Builtin(Signature("expand", (TENSOR,), result="required"), _expand),
    Builtin(
        Signature("concat", (Param("along", "axis"),), result="optional", variadic=True), _concat
    ),
)
