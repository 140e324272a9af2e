"""Losses: each one a mean, over a count the trainer can know before the first backward."""

from __future__ import annotations

from giantdsl.ir.nodes import Count, Value
from giantdsl.ir.types import BUILTIN_DTYPES, FLOAT, AxisKind
from giantdsl.sema.builtins.base import Builtin, feature_axes, needs_size
from giantdsl.sema.scope import Sem, shape
from giantdsl.sema.signature import BuiltinCall, Param, Signature, permute


def _cross_entropy(call: BuiltinCall) -> Sem:
    logits, labels = call.tensor("logits"), call.tensor("labels")
    over = labels.type.dtype
    if over in BUILTIN_DTYPES:
        return call.fail(
            "G223",
            "labels say which class is right: they index an axis",
            f"this is {labels.type}" + (": float" if over == FLOAT else ""),
            "say which axis where they come in: `labels[b, s]: vocab`",
            call.span_of("labels"),
        )
    if over not in logits.type.axes:
        return call.fail(
            "G223",
            f"labels index `{over}`, but the logits are {logits.type}",
            f"no axis `{over}` in the logits",
            "say which axis the labels index where they come in: `labels[b, s]: vocab`",
        )
    rest = tuple(a for a in logits.type.axes if a != over)
    if set(rest) != set(labels.type.axes):
        return call.fail(
            "G223",
            f"labels are {labels.type}, the logits without `{over}` are {shape(rest)}",
            "one label for each row of logits",
            span=call.span_of("labels"),
        )
    weight = call.args.get("weight")
    if isinstance(weight, Value) and (
        set(weight.type.axes) != set(rest) or weight.type.dtype != FLOAT
    ):
        return call.fail(
            "G223",
            f"`weight` of `cross_entropy` is over {shape(rest)}",
            f"this is {weight.type}",
            span=call.span_of("weight"),
        )
    smooth = float(call.number("smooth"))
    if not 0.0 <= smooth < 1.0:
        return call.fail("G203", "`smooth` is a share from 0 up to 1", f"this is {smooth:g}")
    counted = Count("valid", labels, int(call.number("ignore")), None)
    inputs = [logits, permute(call.tables, call.frame, labels, rest, call.span)]
    if isinstance(weight, Value):
        counted = Count("valid", labels, counted.ignore, weight)
        inputs.append(permute(call.tables, call.frame, weight, rest, call.span))
    attrs = {
        "over": over,
        "ignore": counted.ignore,
        "smooth": smooth,
        "extras": ("weight",) if isinstance(weight, Value) else (),
    }
    result = call.emit("cross_entropy", inputs, (), attrs)
    batched = any(call.tables.kind(a) is AxisKind.BATCH for a in rest)
    if batched:
        call.tables.row_means[id(result)] = counted
    return result


def _z_loss(call: BuiltinCall) -> Sem:
    logits = call.tensor("logits")
    features = feature_axes(call.tables, logits.type.axes)
    over = call.axis("over") if call.given("over") else (features[-1] if features else "")
    if over not in logits.type.axes or logits.type.dtype != FLOAT:
        return call.fail("G225", "`z_loss` needs a class axis", f"this is {logits.type}")
    wrong = needs_size(call, "over", over)
    if wrong is not None:
        return wrong
    result = call.emit("z_loss", [logits], (), {"over": over})
    call.tables.row_means[id(result)] = Count("rows")
    return result


def _mse(call: BuiltinCall) -> Sem:
    a, b = call.tensor("a"), call.tensor("b")
    if set(a.type.axes) != set(b.type.axes) or (a.type.dtype, b.type.dtype) != (FLOAT, FLOAT):
        return call.fail("G201", "`mse` compares tensors of one type", f"{a.type} and {b.type}")
    b = permute(call.tables, call.frame, b, a.type.axes, call.span)
    result = call.emit("mse", [a, b], ())
    call.tables.row_means[id(result)] = Count("rows")
    return result


LOSSES = (
    Builtin(
        Signature(
            "cross_entropy",
            (
                Param("logits", "tensor"),
                Param("labels", "tensor"),
                Param("ignore", "int", -100),
                Param("smooth", "number", 0),
                Param("weight", "tensor?", None),
            ),
        ),
        _cross_entropy,
    ),
    Builtin(
        Signature("z_loss", (Param("logits", "tensor"), Param("over", "axis?", None))), _z_loss
    ),
    Builtin(Signature("mse", (Param("a", "tensor"), Param("b", "tensor"))), _mse),
)
