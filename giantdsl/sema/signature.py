"""Signatures of builtins: which arguments they take and what kind each must be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from giantdsl.attrs import Attr, Config
from giantdsl.diagnostics import Diagnostic, Label, did_you_mean
from giantdsl.ir.nodes import Op, Value, WeightUse
from giantdsl.ir.types import FLOAT, TensorType
from giantdsl.sema.layers import LayerBuilder
from giantdsl.sema.scalars import Failed
from giantdsl.sema.scope import AxisArg, Frame, Sem, Tables, as_attr, describe
from giantdsl.source import Span


class Required:
    """The default of a parameter that has none."""


REQUIRED = Required()


@dataclass(frozen=True, slots=True)
class Param:
    """A parameter of a builtin.

    Kinds: tensor, route, number, int, bool, axis, axes (one or a list), config (a call such as
    normal(0.02)), layer (the name of a layer, not evaluated), word. A kind that ends in `?`
    also takes none.
    """

    name: str
    kind: str
    default: Attr | Required = REQUIRED

    @property
    def optional(self) -> bool:
        return not isinstance(self.default, Required)


@dataclass(frozen=True, slots=True)
class Signature:
    """What a builtin takes. `layer`: it may own weights and be named. `result`: whether `->` is
    required, optional or none. `variadic`: any number of tensors come first."""

    name: str
    params: tuple[Param, ...]
    layer: bool = False
    result: str = "none"
    variadic: bool = False

    def param(self, name: str) -> Param | None:
        return next((p for p in self.params if p.name == name), None)

    def __str__(self) -> str:
        shown = [p.name if not p.optional else f"{p.name}=" for p in self.params]
        return f"{self.name}({', '.join((['…'] if self.variadic else []) + shown)})"


_WORDS = {
    "tensor": "a tensor",
    "route": "the result of topk",
    "number": "a number",
    "int": "a whole number",
    "bool": "true or false",
    "axis": "an axis",
    "axes": "an axis or a list of axes",
    "config": "a call",
    "word": "a word",
}


def fits(kind: str, sem: Sem) -> bool:
    """Whether a value may stand for a parameter of this kind."""
    if kind.endswith("?"):
        if sem is None:
            return True
        kind = kind[:-1]
    if kind == "tensor":
        return isinstance(sem, Value) and sem.type.dtype != "route"
    if kind == "route":
        return isinstance(sem, Value) and sem.type.dtype == "route"
    if kind == "number":
        return isinstance(sem, int | float) and not isinstance(sem, bool)
    if kind == "int":
        return isinstance(sem, int) and not isinstance(sem, bool)
    if kind == "bool":
        return isinstance(sem, bool)
    if kind == "axis":
        return isinstance(sem, AxisArg)
    if kind == "axes":
        many = isinstance(sem, tuple) and bool(sem)
        return isinstance(sem, AxisArg) or (many and all(isinstance(x, AxisArg) for x in sem))  # type: ignore[union-attr]
    if kind in ("config", "word"):
        return isinstance(sem, Config)
    return True


def wrong_kind(signature: Signature, param: Param, sem: Sem, span: Span) -> Diagnostic:
    wanted = _WORDS[param.kind.rstrip("?")]
    if wanted == _WORDS["config"]:
        example = "normal(0.02)" if param.name == "init" else "linear(factor=8)"
        wanted += f" such as {example}"
    return Diagnostic(
        "G232",
        f"`{param.name}` of `{signature.name}` is {wanted}",
        Label(span, f"this is {describe(sem)}"),
        f"it takes: {signature}",
    )


def unknown_argument(signature: Signature, name: str, span: Span) -> Diagnostic:
    names = [p.name for p in signature.params]
    return Diagnostic(
        "G207",
        f"`{signature.name}` has no parameter `{name}`",
        Label(span, "unknown"),
        did_you_mean(name, names, f"it has: {', '.join(names)}"),
    )


def too_many(name: str, names: list[str], given: int, span: Span) -> Diagnostic:
    return Diagnostic(
        "G207",
        f"too many arguments for `{name}`",
        Label(span, f"{given} given"),
        f"it takes: {', '.join(names)}" if names else "it takes none",
    )


def missing(name: str, param: str, span: Span) -> Diagnostic:
    return Diagnostic(
        "G207", f"`{name}` needs `{param}`", Label(span, "not given"), f"add `{param}=…`"
    )


@dataclass(slots=True)
class BuiltinCall:
    """A call of a builtin with its arguments evaluated, bound and checked."""

    tables: Tables
    frame: Frame
    signature: Signature
    args: Mapping[str, Sem]
    spans: Mapping[str, Span]
    tensors: tuple[Value, ...]
    axes: tuple[str, ...] | None
    at: tuple[tuple[str, str], ...]
    axes_span: Span
    span: Span
    layer: LayerBuilder | None = None
    fuse: int | None = None

    def tensor(self, name: str) -> Value:
        value = self.args[name]
        assert isinstance(value, Value)
        return value

    def axis(self, name: str) -> str:
        value = self.args[name]
        assert isinstance(value, AxisArg)
        return value.name

    def number(self, name: str) -> float:
        value = self.args[name]
        assert isinstance(value, int | float)
        return value

    def given(self, name: str) -> bool:
        return self.args.get(name) is not None

    def attr(self, name: str) -> Attr:
        value = self.args[name]
        attr = as_attr(value)
        assert not isinstance(attr, Failed), name
        return attr

    def span_of(self, name: str) -> Span:
        return self.spans.get(name, self.span)

    def fail(
        self,
        code: str,
        message: str,
        label: str,
        help: str | None = None,
        span: Span | None = None,
    ) -> Sem:
        """Report a fault; the call then counts as what it was declared to be.

        Silent where an operand was already reported: the fault may only follow from that.
        """
        if any(self.tables.is_poisoned(value) for value in (*self.args.values(), *self.tensors)):
            return self.tables.poison(self.axes, self.span)
        self.tables.sink.add(Diagnostic(code, message, Label(span or self.span, label), help))
        return self.tables.poison(self.axes, self.span)

    def emit(
        self,
        kind: str,
        inputs: Sequence[Value],
        axes: tuple[str, ...],
        attrs: Mapping[str, Attr] | None = None,
        *,
        dtype: str = FLOAT,
        weights: Sequence[WeightUse | None] = (),
        draws: bool = False,
    ) -> Value:
        """Append an op to the function and give its result."""
        return emit_op(
            self.tables,
            self.frame,
            kind,
            inputs,
            TensorType(axes, dtype, self.at),
            attrs or {},
            self.span,
            weights=tuple(use for use in weights if use is not None),
            layer=self.layer.name if self.layer is not None else "",
            fuse=self.fuse,
            draws=draws,
        )

    def builder(self) -> LayerBuilder:
        assert self.layer is not None, self.signature.name
        return self.layer


def emit_op(
    tables: Tables,
    frame: Frame,
    kind: str,
    inputs: Sequence[Value],
    type: TensorType,
    attrs: Mapping[str, Attr],
    span: Span,
    *,
    weights: tuple[WeightUse, ...] = (),
    layer: str = "",
    fuse: int | None = None,
    draws: bool = False,
) -> Value:
    """Append an op with one result to the function under construction."""
    result = Value("", type, span)
    if any(tables.is_poisoned(value) for value in inputs):
        tables.poisoned.add(id(result))
        tables.keep_alive.append(result)
    op = Op(
        kind=kind,
        inputs=tuple(inputs),
        results=(result,),
        attrs=dict(attrs),
        weights=weights,
        layer=layer if weights and any(not use.tied for use in weights) else "",
        span=span,
        fuse=fuse,
        site=frame.next_site() if draws else None,
    )
    tables.producers[id(result)] = op
    tables.keep_alive.append(result)
    return frame.emit(op)


def permute(tables: Tables, frame: Frame, value: Value, axes: tuple[str, ...], span: Span) -> Value:
    """`value` in the memory order of `axes`, the same set."""
    if value.type.axes == axes:
        return value
    type = TensorType(axes, value.type.dtype, value.type.at)
    result = emit_op(tables, frame, "permute", [value], type, {}, span)
    if id(value) in tables.row_means:
        tables.row_means[id(result)] = tables.row_means[id(value)]
    return result
