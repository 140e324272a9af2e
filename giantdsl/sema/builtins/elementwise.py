"""Element by element: activations, dropout, choice; and softmax and reductions over axes."""

from __future__ import annotations

from giantdsl.attrs import Attr
from giantdsl.ir.nodes import Count
from giantdsl.ir.types import BOOL, FLOAT, AxisKind
from giantdsl.sema.broadcast import larger, not_broadcastable
from giantdsl.sema.builtins.base import Builtin, batch_in_front, lacks_batch
from giantdsl.sema.scope import AxisArg, Sem
from giantdsl.sema.signature import BuiltinCall, Param, Signature, permute

UNARY = ("gelu", "gelu_tanh", "silu", "relu", "tanh", "sigmoid", "exp", "log", "sqrt")
TENSOR = Param("x", "tensor")


def _float(call: BuiltinCall, name: str = "x") -> Sem | None:
    """A report if the operand holds no floats or is already a mean over the batch."""
    value = call.tensor(name)
    kind = call.signature.name
    if value.type.dtype != FLOAT:
        return call.fail(
            "G231",
            f"`{kind}` takes a float tensor",
            f"this is {value.type}",
            span=call.span_of(name),
        )
    if id(value) in call.tables.row_means:
        return call.fail(
            "G228",
            f"`{kind}` of a mean over the batch",
            "already averaged over the batch",
            "only sums and multiples of such means do not depend on microbatches",
            call.span_of(name),
        )
    return None


def _unary(call: BuiltinCall) -> Sem:
    wrong = _float(call)
    x = call.tensor("x")
    return wrong if wrong is not None else call.emit(call.signature.name, [x], x.type.axes)


def _softcap(call: BuiltinCall) -> Sem:
    wrong = _float(call)
    x = call.tensor("x")
    by = float(call.number("by"))
    if wrong is None and by <= 0:
        return call.fail("G203", "`softcap` needs a bound above 0", f"this is {by:g}")
    return wrong if wrong is not None else call.emit("softcap", [x], x.type.axes, {"by": by})


def _dropout(call: BuiltinCall) -> Sem:
    wrong = _float(call)
    if wrong is not None:
        return wrong
    x, p = call.tensor("x"), float(call.number("p"))
    if not 0.0 <= p < 1.0:
        return call.fail(
            "G203", "dropout is a share from 0 up to 1", f"this is {p:g}", span=call.span_of("p")
        )
    if p == 0:
        return x
    lacks = lacks_batch(call, "x")
    if lacks is not None:
        return lacks
    first = batch_in_front(call.tables, x.type.axes)
    turned = permute(call.tables, call.frame, x, first, call.span)
    made = call.emit("dropout", [turned], first, {"p": p}, draws=True)
    return permute(call.tables, call.frame, made, x.type.axes, call.span)


def _where(call: BuiltinCall) -> Sem:
    condition, a, b = (call.tensor(name) for name in ("condition", "a", "b"))
    if condition.type.dtype != BOOL:
        return call.fail(
            "G231",
            "`where` chooses by a bool tensor",
            f"this is {condition.type}",
            span=call.span_of("condition"),
        )
    if a.type.dtype != b.type.dtype:
        return call.fail("G231", "`where` chooses among equal types", f"{a.type} or {b.type}")
    axes = condition.type.axes
    for value in (a, b):
        bigger = larger(axes, value.type.axes)
        if bigger is None:
            call.tables.sink.add(not_broadcastable("where", axes, value.type.axes, call.span))
            return call.tables.poison(call.axes, call.span)
        axes = bigger
    return call.emit("where", [condition, a, b], axes, dtype=a.type.dtype)


def _over(call: BuiltinCall) -> tuple[str, ...] | Sem:
    given = call.args["over"]
    names = (given,) if isinstance(given, AxisArg) else given
    assert isinstance(names, tuple)
    axes = tuple(a.name for a in names if isinstance(a, AxisArg))
    x = call.tensor("x")
    for i, axis in enumerate(axes):
        if axis in axes[:i]:
            what = f"`{call.signature.name}` over `{axis}` twice"
            return call.fail("G225", what, "named twice", span=call.span_of("over"))
        if axis not in x.type.axes:
            return call.fail(
                "G225",
                f"`{call.signature.name}` over `{axis}`, which is not there",
                f"this is {x.type}",
                f"it has {', '.join(x.type.axes) or 'no axes'}",
                call.span_of("x"),
            )
    return axes


def _softmax(call: BuiltinCall) -> Sem:
    wrong = _float(call)
    over = _over(call)
    if wrong is not None or not isinstance(over, tuple):
        return wrong if wrong is not None else over
    x = call.tensor("x")
    if len(over) != 1 or call.tables.kind(str(over[0])) is AxisKind.BATCH:
        return call.fail(
            "G225",
            "`softmax` runs over one axis that is no batch axis",
            f"over {', '.join(str(a) for a in over)}",
            span=call.span_of("over"),
        )
    return call.emit("softmax", [x], x.type.axes, {"over": str(over[0])})


def _reduce(call: BuiltinCall) -> Sem:
    wrong = _float(call)
    over = _over(call)
    if wrong is not None or not isinstance(over, tuple):
        return wrong if wrong is not None else over
    kind, x = call.signature.name, call.tensor("x")
    axes = tuple(a for a in x.type.axes if a not in over)
    names: tuple[Attr, ...] = tuple(str(a) for a in over)
    batch = [a for a in over if call.tables.kind(str(a)) in (AxisKind.BATCH, AxisKind.RAGGED)]
    if batch and (kind != "mean" or axes):
        return call.fail(
            "G228",
            f"`{kind}` over the {call.tables.kind_word(str(batch[0]))} axis `{batch[0]}`",
            "depends on how many rows a microbatch has",
            "keep the batch axis; a loss may take the mean over all axes",
            call.span_of("over"),
        )
    result = call.emit(kind, [x], axes, {"over": names})
    if batch:
        call.tables.row_means[id(result)] = Count("rows")
    return result


def _reducer(name: str) -> Builtin:
    return Builtin(Signature(name, (TENSOR, Param("over", "axes"))), _reduce)


ELEMENTWISE = (
    *(Builtin(Signature(name, (TENSOR,)), _unary) for name in UNARY),
    Builtin(Signature("softcap", (TENSOR, Param("by", "number"))), _softcap),
    Builtin(Signature("dropout", (TENSOR, Param("p", "number"))), _dropout),
    Builtin(
        Signature(
            "where", (Param("condition", "tensor"), Param("a", "tensor"), Param("b", "tensor"))
        ),
        _where,
    ),
    Builtin(Signature("softmax", (TENSOR, Param("over", "axes"))), _softmax),
    *(_reducer(name) for name in ("mean", "sum", "max")),
)
