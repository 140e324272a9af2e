"""What a builtin is: a signature and the function that checks a call and emits its op."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from giantdsl.ir.types import AxisKind
from giantdsl.sema.scope import Sem, Tables, shape
from giantdsl.sema.signature import BuiltinCall, Param, Signature

Build = Callable[[BuiltinCall], Sem]


@dataclass(frozen=True, slots=True)
class Builtin:
    signature: Signature
    build: Build


WEIGHT_OPTIONS = (
    Param("init", "config?", None),
    Param("lr", "number?", None),
    Param("decay", "bool?", None),
    Param("dtype", "word?", None),
    Param("tie", "layer?", None),
    Param("per", "axis?", None),
)


def feature_axes(tables: Tables, axes: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(a for a in axes if tables.kind(a) is AxisKind.FEATURE)


def batch_in_front(tables: Tables, axes: tuple[str, ...]) -> tuple[str, ...]:
    """The axes with batch axes first: what is drawn is a function of the sample (invariant 9)."""
    batch = tuple(a for a in axes if tables.kind(a) is AxisKind.BATCH)
    return (*batch, *(a for a in axes if a not in batch))


def lacks_batch(call: BuiltinCall, name: str) -> Sem | None:
    """A report if an operand of something random has no batch axis."""
    value = call.tensor(name)
    if any(call.tables.kind(a) is AxisKind.BATCH for a in value.type.axes):
        return None
    return call.fail(
        "G228",
        "dropout needs the batch axis: it is drawn for each sample",
        f"this is {value.type}",
        "drop elements of a tensor over the batch instead",
        call.span_of(name),
    )


def needs_size(call: BuiltinCall, name: str, axis: str) -> Sem | None:
    """A report if an axis that an operation counts along depends on the batch."""
    if call.tables.kind(axis) not in (AxisKind.BATCH, AxisKind.RAGGED):
        return None
    return call.fail(
        "G228",
        f"`{call.signature.name}` along the {call.tables.kind_word(axis)} axis `{axis}`",
        "depends on how the batch is cut",
        "use an axis with a size of its own",
        call.span_of(name),
    )


def check_per(call: BuiltinCall, *places: tuple[str, ...]) -> Sem | None:
    """A report if a weight for each index of the `per` axes makes no sense here.

    `places` are the axes of the input and of the result: both must have the `per` axes.
    """
    layer, kind = call.builder(), call.signature.name
    span = call.span_of("per")
    for i, axis in enumerate(layer.per):
        axis_kind = call.tables.kind(axis)
        if axis_kind in (AxisKind.BATCH, AxisKind.RAGGED):
            return call.fail(
                "G221",
                f"a weight cannot have the {call.tables.kind_word(axis)} axis `{axis}`",
                "no size is known here",
                span=span,
            )
        if axis in layer.per[:i]:
            return call.fail(
                "G230",
                f"`{kind}` is already `per={axis}`",
                "twice",
                "the block it is in has one copy for each index already",
                span,
            )
        for axes in places:
            if axis not in axes:
                return call.fail(
                    "G230",
                    f"`{kind}` has a weight for each index of `{axis}`, but no axis `{axis}`",
                    f"`{axis}` is not in {shape(axes)}",
                    f"with `per={axis}` both the input and the result have the axis `{axis}`",
                )
    return None


def refuse_per(call: BuiltinCall) -> Sem | None:
    """A report if there are `per` axes, for layers that cannot have any."""
    if not call.builder().per:
        return None
    return call.fail(
        "G230",
        f"`{call.signature.name}` cannot have a copy for each index of an axis",
        f"per={call.builder().per[-1]}",
        "`per` is for linear, layernorm, rmsnorm and param; move this out of the block",
    )
