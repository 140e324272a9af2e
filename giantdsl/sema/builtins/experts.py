"""Mixture of experts: choose, send, fetch back, and the loss that keeps the choice even."""

from __future__ import annotations

import math
from typing import TypeGuard

from giantdsl.attrs import Attr
from giantdsl.ir.nodes import Count, Value
from giantdsl.ir.types import FLOAT, ROUTE, AxisKind
from giantdsl.sema.builtins.base import Builtin
from giantdsl.sema.scope import Sem, shape
from giantdsl.sema.signature import BuiltinCall, Param, Signature, permute


def _topk(call: BuiltinCall) -> Sem:
    probs, over = call.tensor("probs"), call.axis("over")
    k = int(call.number("k"))
    if over not in probs.type.axes:
        return call.fail(
            "G225",
            f"`topk` over `{over}`, which is not there",
            f"this is {probs.type}",
            span=call.span_of("probs"),
        )
    if call.tables.kind(over) is not AxisKind.FEATURE or probs.type.dtype != FLOAT:
        return call.fail(
            "G222",
            "`topk` chooses by floats over a feature axis",
            f"over the {call.tables.kind_word(over)} axis `{over}` of {probs.type}",
        )
    size = call.tables.size(over) or 0
    if not 1 <= k <= size:
        return call.fail(
            "G203",
            f"`topk` chooses 1 to {size} of `{over}`",
            f"this is {k}",
            span=call.span_of("k"),
        )
    axes = tuple(a for a in probs.type.axes if a != over)
    attrs: dict[str, Attr] = {"k": k, "over": over, "renormalize": call.attr("renormalize")}
    return call.emit("topk", [probs], axes, attrs, dtype=ROUTE)


def _chosen(call: BuiltinCall) -> tuple[str, int] | Sem:
    """Over which axis the `topk` behind a route chose, and how many."""
    op = call.tables.producers.get(id(call.tensor("route")))
    if op is None or op.kind != "topk":
        return call.fail(
            "G222",
            f"`{call.signature.name}` takes a route as `topk` gave it",
            "it came another way",
            "choose, send and fetch back in one block, and in one iteration of a loop",
            call.span_of("route"),
        )
    over, k = op.attrs["over"], op.attrs["k"]
    assert isinstance(over, str) and isinstance(k, int)
    return over, k


def _is_choice(found: tuple[str, int] | Sem) -> TypeGuard[tuple[str, int]]:
    return isinstance(found, tuple) and len(found) == 2 and isinstance(found[0], str)


def _dispatch(call: BuiltinCall) -> Sem:
    assert call.axes is not None
    x, route = call.tensor("x"), call.tensor("route")
    chosen = _chosen(call)
    if not _is_choice(chosen):
        return chosen
    experts, k = chosen
    tokens = route.type.axes
    if x.type.dtype != FLOAT:
        return call.fail("G231", "`dispatch` sends floats", f"this is {x.type}")
    features = tuple(a for a in x.type.axes if a not in tokens)
    slots = [a for a in call.axes if call.tables.kind(a) is AxisKind.RAGGED]
    if set(tokens) - set(x.type.axes):
        return call.fail(
            "G222", f"`dispatch` sends tokens over {shape(tokens)}", f"this is {x.type}"
        )
    if len(slots) != 1 or set(call.axes) != {experts, *slots, *features}:
        wanted = shape((experts, "slot", *features))
        return call.fail(
            "G222",
            f"`dispatch` makes {wanted}, `slot` a ragged axis",
            f"this is {shape(call.axes)}",
            "declare it in `dims`: `slot: ragged`",
            call.axes_span,
        )
    capacity = call.args["capacity"]
    size = call.tables.size(slots[0])
    if size is not None and capacity is None:
        positions = [call.tables.size(a) or 1 for a in tokens if not _is_batch(call, a)]
        num_experts = call.tables.size(experts) or 1
        capacity = size * num_experts / (k * math.prod(positions))
    if isinstance(capacity, int | float) and capacity <= 0:
        return call.fail("G203", "`capacity` must be above 0", f"this is {capacity:g}")
    axes = (experts, slots[0], *features)
    if call.axes != axes:
        return call.fail(
            "G222",
            f"`dispatch` makes {shape(axes)} in this order",
            "another order",
            None,
            call.axes_span,
        )
    attrs: dict[str, Attr] = {
        "experts": experts,
        "slot": slots[0],
        "capacity": float(capacity) if isinstance(capacity, int | float) else None,
    }
    factor = float(capacity) if isinstance(capacity, int | float) else None
    known = call.tables.capacities.setdefault(id(route), factor)
    if known != factor:
        return call.fail(
            "G203",
            "one route has one capacity",
            f"it was sent with {'none' if known is None else f'{known:g}'} before",
        )
    return call.emit("dispatch", [x, route], axes, attrs)


def _is_batch(call: BuiltinCall, axis: str) -> bool:
    return call.tables.kind(axis) is AxisKind.BATCH


def _combine(call: BuiltinCall) -> Sem:
    y, route = call.tensor("y"), call.tensor("route")
    chosen = _chosen(call)
    if not _is_choice(chosen):
        return chosen
    experts = chosen[0]
    slots = [a for a in y.type.axes if call.tables.kind(a) is AxisKind.RAGGED]
    if len(slots) != 1 or experts not in y.type.axes or y.type.dtype != FLOAT:
        return call.fail(
            "G222",
            f"`combine` takes [{experts}, slot, ..]",
            f"this is {y.type}",
            span=call.span_of("y"),
        )
    features = tuple(a for a in y.type.axes if a not in (experts, slots[0]))
    axes = (*route.type.axes, *features)
    attrs: dict[str, Attr] = {
        "experts": experts,
        "slot": slots[0],
        "capacity": call.tables.capacities.get(id(route)),
    }
    return call.emit("combine", [y, route], axes, attrs)


def _load_balance(call: BuiltinCall) -> Sem:
    probs = call.tensor("probs")
    route = call.tensor("route")
    chosen = _chosen(call)
    if not _is_choice(chosen):
        return chosen
    over, k = chosen
    axes = (*route.type.axes, over)
    if set(probs.type.axes) != set(axes) or probs.type.dtype != FLOAT:
        return call.fail(
            "G222",
            f"`load_balance` takes {shape(axes)}",
            f"this is {probs.type}",
            span=call.span_of("probs"),
        )
    probs = permute(call.tables, call.frame, probs, axes, call.span)
    result = call.emit("load_balance", [probs, route], (), {"over": over, "k": k})
    assert isinstance(result, Value)
    call.tables.row_means[id(result)] = Count("rows")
    return result


ROUTED = Param("route", "route")
EXPERTS = (
    Builtin(
        Signature(
            "topk",
            (
                Param("probs", "tensor"),
                Param("k", "int"),
                Param("over", "axis"),
                Param("renormalize", "bool", True),
            ),
        ),
        _topk,
    ),
    Builtin(
        Signature(
            "dispatch",
            (Param("x", "tensor"), ROUTED, Param("capacity", "number?", None)),
            result="required",
        ),
        _dispatch,
    ),
    Builtin(Signature("combine", (Param("y", "tensor"), ROUTED), result="optional"), _combine),
    Builtin(Signature("load_balance", (Param("probs", "tensor"), ROUTED)), _load_balance),
)
