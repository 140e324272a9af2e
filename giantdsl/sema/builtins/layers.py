"""Layers with weights: linear, embedding, norms, bare parameters."""

from __future__ import annotations

from giantdsl.attrs import Attr
from giantdsl.ir.nodes import Init, Value
from giantdsl.ir.types import BUILTIN_DTYPES, FLOAT, AxisKind
from giantdsl.sema.builtins.base import (
    WEIGHT_OPTIONS,
    Builtin,
    check_per,
    feature_axes,
    needs_size,
    refuse_per,
)
from giantdsl.sema.scope import Sem, shape
from giantdsl.sema.signature import BuiltinCall, Param, Signature

DEFAULT_INIT = Init("normal", 0.02)


def _linear(call: BuiltinCall) -> Sem:
    x = call.tensor("x")
    tables, layer = call.tables, call.builder()
    if x.type.dtype != FLOAT:
        return call.fail(
            "G231", "`linear` takes a float tensor", f"this is {x.type}", span=call.span_of("x")
        )
    out = call.axes if call.axes is not None else x.type.axes
    wrong = check_per(call, x.type.axes, out)
    if wrong is not None:
        return wrong
    gone = tuple(a for a in x.type.axes if a not in out)
    new = tuple(a for a in out if a not in x.type.axes)
    square = not gone and not new
    if square:
        features = [a for a in feature_axes(tables, x.type.axes) if a not in layer.per]
        if not features:
            return call.fail(
                "G221",
                "`linear` has nothing to contract",
                f"{x.type} has no feature axis",
                "a linear layer maps feature axes",
            )
        gone = new = (features[-1],)
    for axis in gone:
        if tables.kind(axis) is not AxisKind.FEATURE:
            return _not_contractible(call, x, axis, out)
    for axis in new:
        if tables.kind(axis) is not AxisKind.FEATURE:
            kind = tables.kind_word(axis)
            return call.fail(
                "G221",
                f"`linear` cannot make the {kind} axis `{axis}`",
                f"`{axis}` is not in {x.type}",
                "a linear layer makes feature axes; use expand(…) to copy along another one",
                call.axes_span,
            )
    if not gone:
        return call.fail(
            "G221",
            "`linear` has nothing to contract",
            f"every axis of {x.type} is in the result",
            "leave out the feature axis that is mapped, or use expand(…)",
            call.axes_span,
        )
    weight = layer.weight(new, gone, default_init=DEFAULT_INIT)
    bias = layer.bias(new) if call.args["bias"] else None
    attrs: dict[str, Attr] = {
        "contracted": gone,
        "created": new,
        "square": square,
        "per": layer.per,
    }
    if weight is None:
        return tables.poison(out, call.span)
    return call.emit("linear", [x], out, attrs, weights=[weight, bias])


def _not_contractible(call: BuiltinCall, x: Value, axis: str, out: tuple[str, ...]) -> Sem:
    kind, word = call.tables.kind(axis), call.tables.kind_word(axis)
    kept = [a for a in x.type.axes if a in out or a == axis]
    kept += [a for a in out if a not in kept]
    keep = f"keep it: `-> {shape(tuple(kept))}`"
    pool = f"; to pool over it, say so: mean({x.name or 'x'}, over={axis})"
    return call.fail(
        "G216",
        f"`linear` would sum over the {word} axis `{axis}`",
        f"`{axis}` of {x.type} is missing here",
        keep + (pool if kind is AxisKind.SEQ else ""),
        call.axes_span,
    )


def _embedding(call: BuiltinCall) -> Sem:
    indices = call.tensor("indices")
    index = indices.type.dtype
    if index in BUILTIN_DTYPES:
        shown = f"{indices.type}" if index != FLOAT else f"{indices.type}: float"
        return call.fail(
            "G220",
            "`embedding` looks up indices",
            f"this is {shown}, which indexes nothing",
            "say which axis the numbers index where they come in: `tokens[b, s]: vocab`",
        )
    assert call.axes is not None
    lost = [a for a in indices.type.axes if a not in call.axes]
    new = tuple(a for a in call.axes if a not in indices.type.axes)
    if lost:
        return call.fail(
            "G201",
            f"`embedding` keeps the axes of its indices, {shape(indices.type.axes)}",
            f"`{lost[0]}` is missing here",
            span=call.axes_span,
        )
    if not new:
        return call.fail(
            "G221",
            "`embedding` makes at least one axis",
            f"all of {shape(call.axes)} are axes of the indices",
            "name the feature axis it looks up: `-> [b, s, d]`",
            call.axes_span,
        )
    for axis in new:
        if call.tables.kind(axis) in (AxisKind.BATCH, AxisKind.RAGGED):
            return call.fail(
                "G221",
                f"`embedding` cannot make the {call.tables.kind_word(axis)} axis `{axis}`",
                f"`{axis}` is not in {indices.type}",
                f"give the indices the axis `{axis}`",
                call.axes_span,
            )
    wrong = refuse_per(call)
    if wrong is not None:
        return wrong
    weight = call.builder().weight(new, (index,), table=True, default_init=DEFAULT_INIT)
    if weight is None:
        return call.tables.poison(call.axes, call.span)
    attrs: dict[str, Attr] = {"index": index, "created": new}
    return call.emit("embedding", [indices], call.axes, attrs, weights=[weight])


def _norm(call: BuiltinCall) -> Sem:
    kind = call.signature.name
    x = call.tensor("x")
    features = feature_axes(call.tables, x.type.axes)
    over = call.axis("over") if call.given("over") else (features[-1] if features else "")
    if over not in x.type.axes:
        return call.fail(
            "G225",
            f"`{kind}` over `{over}`, which is not there" if over else f"`{kind}` needs an axis",
            f"this is {x.type}",
            "name one of its axes: over=…" if not over else f"it has {', '.join(x.type.axes)}",
            call.span_of("over" if call.given("over") else "x"),
        )
    if x.type.dtype != FLOAT:
        return call.fail("G231", f"`{kind}` takes a float tensor", f"this is {x.type}")
    wrong = needs_size(call, "over" if call.given("over") else "x", over)
    if wrong is not None:
        return wrong
    eps = float(call.number("eps"))
    if eps <= 0:
        return call.fail(
            "G203", f"`eps` of `{kind}` is above 0", f"this is {eps:g}", span=call.span_of("eps")
        )
    layer = call.builder()
    wrong = check_per(call, tuple(a for a in x.type.axes if a != over))
    if wrong is not None:
        return wrong
    init = call.args.get("init")
    gain = layer.gain(over, 1.0, "weight")
    if init is not None:
        layer.set_init(gain.weight)
    bias = layer.gain(over, 0.0, "bias") if call.args.get("bias") else None
    attrs: dict[str, Attr] = {"over": over, "eps": eps}
    return call.emit(kind, [x], x.type.axes, attrs, weights=[gain, bias])


def _param(call: BuiltinCall) -> Sem:
    assert call.axes is not None
    for axis in call.axes:
        if call.tables.kind(axis) in (AxisKind.BATCH, AxisKind.RAGGED):
            return call.fail(
                "G221",
                f"a weight cannot have the {call.tables.kind_word(axis)} axis `{axis}`",
                "no size is known here",
                span=call.axes_span,
            )
    wrong = check_per(call, call.axes)
    if wrong is not None:
        return wrong
    per = call.builder().per
    rest = tuple(a for a in call.axes if a not in per)
    weight = call.builder().weight(rest, (), default_init=DEFAULT_INIT, leaf="")
    if weight is None:
        return call.tables.poison(call.axes, call.span)
    return call.emit("param", [], (*per, *rest), weights=[weight])


def _relative_bias(call: BuiltinCall) -> Sem:
    assert call.axes is not None
    axes = call.axes
    seqs = [a for a in axes if call.tables.kind(a) is AxisKind.SEQ]
    features = feature_axes(call.tables, axes)
    if len(axes) != 3 or len(seqs) != 2 or len(features) != 1:
        return call.fail(
            "G222",
            "`relative_bias` makes [heads, queries, keys]",
            f"this is {shape(axes)}",
            "one feature axis and two sequence axes, as in `-> [heads, s, s']`",
            call.axes_span,
        )
    wrong = refuse_per(call)
    if wrong is not None:
        return wrong
    heads, s, t = features[0], seqs[0], seqs[1]
    index = call.axis("buckets")
    wrong = needs_size(call, "buckets", index)
    if wrong is not None:
        return wrong
    weight = call.builder().weight((heads,), (index,), table=True, default_init=DEFAULT_INIT)
    if weight is None:
        return call.tables.poison(axes, call.span)
    attrs: dict[str, Attr] = {
        "index": index,
        "heads": heads,
        "s": s,
        "t": t,
        "two_way": call.attr("two_way"),
        "far": call.attr("far"),
    }
    return call.emit("relative_bias", [], (heads, s, t), attrs, weights=[weight])


TENSOR = Param("x", "tensor")
LAYERS = (
    Builtin(
        Signature(
            "linear",
            (TENSOR, Param("bias", "bool", False), *WEIGHT_OPTIONS),
            layer=True,
            result="optional",
        ),
        _linear,
    ),
    Builtin(
        Signature(
            "embedding",
            (Param("indices", "tensor"), *WEIGHT_OPTIONS),
            layer=True,
            result="required",
        ),
        _embedding,
    ),
    Builtin(
        Signature(
            "layernorm",
            (
                TENSOR,
                Param("over", "axis?", None),
                Param("eps", "number", 1e-5),
                Param("bias", "bool", True),
                *WEIGHT_OPTIONS,
            ),
            layer=True,
            result="optional",
        ),
        _norm,
    ),
    Builtin(
        Signature(
            "rmsnorm",
            (TENSOR, Param("over", "axis?", None), Param("eps", "number", 1e-6), *WEIGHT_OPTIONS),
            layer=True,
            result="optional",
        ),
        _norm,
    ),
    Builtin(Signature("param", WEIGHT_OPTIONS, layer=True, result="required"), _param),
    Builtin(
        Signature(
            "relative_bias",
            (
                Param("buckets", "axis"),
                Param("two_way", "bool", True),
                Param("far", "int", 128),
                *WEIGHT_OPTIONS,
            ),
            layer=True,
            result="required",
        ),
        _relative_bias,
    ),
)
