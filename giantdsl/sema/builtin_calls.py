"""Calls of builtins: arguments evaluated by kind, defaults filled in, results checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from giantdsl.attrs import Attr, Config
from giantdsl.diagnostics import Diagnostic, Label, did_you_mean
from giantdsl.ir.nodes import Value
from giantdsl.sema.axes import leading_axes, resolve_axes
from giantdsl.sema.builtins.base import Builtin
from giantdsl.sema.fit import fit
from giantdsl.sema.layers import LayerBuilder
from giantdsl.sema.scalars import FAILED, Failed, evaluate
from giantdsl.sema.scope import AxisArg, Frame, Sem
from giantdsl.sema.signature import (
    BuiltinCall,
    Param,
    Required,
    Signature,
    fits,
    missing,
    too_many,
    unknown_argument,
    wrong_kind,
)
from giantdsl.source import Span
from giantdsl.syntax import ast

if TYPE_CHECKING:
    from giantdsl.sema.elaborate import Elaborator

_OPTIONS = ("init", "lr", "decay", "dtype")
DTYPES = ("float32", "bf16", "float64")


class _Arguments:
    """The evaluated arguments of one call."""

    def __init__(self) -> None:
        self.values: dict[str, Sem] = {}
        self.spans: dict[str, Span] = {}
        self.tensors: list[Value] = []
        self.tie: ast.Path | None = None
        self.failed = False


def call_builtin(
    e: Elaborator,
    frame: Frame,
    call: ast.Call,
    builtin: Builtin,
    hints: Sequence[str | None],
    types: Sequence[ast.Axes | None],
) -> list[Sem]:
    """The results of a builtin: one for each of `types` (several only for `linear`)."""
    signature = builtin.signature
    arguments = _arguments(e, frame, call, signature)
    if call.layer is not None and not signature.layer:
        e.sink.add(
            Diagnostic(
                "G214",
                f"`{signature.name}` has no weights, so it cannot be named",
                Label(call.layer.span, "a layer name"),
                f"leave out `as {call.layer.text}`",
            )
        )
    fuse = None
    if len(types) > 1:
        frame.num_fused += 1
        fuse = frame.num_fused
    results: list[Sem] = []
    for hint, type in zip(hints, types, strict=True):
        results.append(_one(e, frame, call, builtin, arguments, hint, type, fuse))
    return results


def _one(
    e: Elaborator,
    frame: Frame,
    call: ast.Call,
    builtin: Builtin,
    arguments: _Arguments,
    hint: str | None,
    type: ast.Axes | None,
    fuse: int | None,
) -> Sem:
    signature = builtin.signature
    if type is None and signature.result == "required":
        e.sink.add(
            Diagnostic(
                "G217",
                f"`{signature.name}` needs a result type",
                Label(call.span, "`->` is missing"),
                f"say what it makes: `{signature.name}(…) -> {_made_by(signature.name)}`",
            )
        )
        return FAILED
    declared = None
    if type is not None:
        first = next((v for v in _tensors(arguments)), None)
        rest = frame.rest
        if rest is None and first is not None:
            rest = leading_axes(e.tables, first.type.axes)
        declared = resolve_axes(e.tables, frame, type, rest)
        if declared is None:
            return FAILED
    axes = declared[0] if declared is not None else None
    span = type.span if type is not None else call.span
    name = call.layer.text if call.layer is not None else (hint or signature.name)
    if arguments.failed:
        frame.failed_layers.add(name)
        return e.tables.poison(axes, call.span)
    layer = None
    if signature.layer:
        layer = _layer(e, frame, arguments, name, call.span)
    built = builtin.build(
        BuiltinCall(
            tables=e.tables,
            frame=frame,
            signature=signature,
            args=arguments.values,
            spans=arguments.spans,
            tensors=tuple(arguments.tensors),
            axes=axes,
            at=declared[1] if declared is not None else (),
            axes_span=span,
            span=call.span,
            layer=layer,
            fuse=fuse,
        )
    )
    if e.tables.is_poisoned(built):
        frame.failed_layers.add(name)
    if axes is None or isinstance(built, Failed):
        return built
    return fit(e.tables, frame, built, axes, span)


def _made_by(name: str) -> str:
    """An example of the result of a builtin."""
    full = {"alibi": "[heads, s, s']", "relative_bias": "[heads, s, s']", "param": "[s, d]"}
    return full.get(name, "[experts, slot, d]" if name == "dispatch" else "[b, s, d]")


def _layer(
    e: Elaborator, frame: Frame, arguments: _Arguments, name: str, span: Span
) -> LayerBuilder:
    options: dict[str, Attr] = {}
    for key in _OPTIONS:
        value = arguments.values.get(key)
        if value is None or isinstance(value, bool | int | float | Config):
            options[key] = value
    per = arguments.values.get("per")
    return LayerBuilder(
        e.tables,
        frame,
        name,
        options,
        arguments.tie,
        (per.name,) if isinstance(per, AxisArg) else (),
        span,
        arguments.spans.get("init", span),
    )


def _tensors(arguments: _Arguments) -> list[Value]:
    named = [v for v in arguments.values.values() if isinstance(v, Value)]
    return [*arguments.tensors, *named]


def _arguments(e: Elaborator, frame: Frame, call: ast.Call, signature: Signature) -> _Arguments:
    found = _Arguments()
    positional = 0
    for arg in call.args:
        if arg.name is not None:
            param = signature.param(arg.name.text)
            if param is None:
                e.sink.add(unknown_argument(signature, arg.name.text, arg.name.span))
                found.failed = True
                continue
        elif signature.variadic:
            value = e.expr(frame, arg.value)
            if isinstance(value, Value):
                found.tensors.append(value)
            else:
                _reject(e, found, signature, Param("tensor", "tensor"), value, arg.value.span)
            continue
        elif positional < len(_positional(signature)):
            param = _positional(signature)[positional]
            positional += 1
        else:
            names = [p.name for p in signature.params]
            given = sum(1 for a in call.args if a.name is None)
            e.sink.add(too_many(signature.name, names, given, call.span))
            found.failed = True
            return found
        if param.name in found.spans:
            e.sink.add(
                Diagnostic(
                    "G207",
                    f"`{param.name}` is given twice",
                    Label(arg.span, "again here"),
                    None,
                    (Label(found.spans[param.name], "first here"),),
                )
            )
            found.failed = True
            continue
        found.spans[param.name] = arg.value.span
        _take(e, frame, found, signature, param, arg.value)
    for arg in frame.library.defaults.get(signature.name, ()):
        param = signature.param(arg.name.text) if arg.name is not None else None
        if param is not None and param.name not in found.spans:
            found.spans[param.name] = arg.value.span
            _take(e, frame, found, signature, param, arg.value)
    for param in signature.params:
        if param.name in found.spans:
            continue
        if isinstance(param.default, Required):
            e.sink.add(missing(signature.name, param.name, call.span))
            found.failed = True
        else:
            found.values[param.name] = param.default
    return found


def _positional(signature: Signature) -> tuple[Param, ...]:
    """Weight options go by name only."""
    return tuple(p for p in signature.params if not p.kind.startswith("layer"))


def _take(
    e: Elaborator,
    frame: Frame,
    found: _Arguments,
    signature: Signature,
    param: Param,
    expr: ast.Expr,
) -> None:
    kind = param.kind.rstrip("?")
    if kind == "layer":
        if isinstance(expr, ast.Path):
            found.tie = expr
        elif not isinstance(expr, ast.NoneLiteral):
            e.sink.add(
                Diagnostic(
                    "G219", "`tie` names a layer", Label(expr.span, "not a layer"), "e.g. tie=tok"
                )
            )
            found.failed = True
        return
    if kind in ("config", "word"):
        value: Sem = evaluate(expr, e.static_names(frame), e.sink, words=True)
    else:
        value = e.expr(frame, expr)
    if isinstance(value, AxisArg) and kind in ("number", "int"):
        value = value.size
    if kind == "number" and isinstance(value, bool):
        _reject(e, found, signature, param, value, expr.span)
        return
    if kind == "int" and isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, Failed):
        found.failed = True
    elif not fits(param.kind, value):
        _reject(e, found, signature, param, value, expr.span)
    elif (fault := _option_fault(param.name, kind, value, expr.span)) is not None:
        e.sink.add(fault)
        found.failed = True
    else:
        found.values[param.name] = value


def _option_fault(name: str, kind: str, value: Sem, span: Span) -> Diagnostic | None:
    """What is wrong with the value of an option that every layer takes."""
    if kind == "word" and isinstance(value, Config) and str(value) not in DTYPES:
        known = f"known: {', '.join(DTYPES)}"
        return Diagnostic(
            "G218",
            f"no dtype `{value}`",
            Label(span, "unknown"),
            did_you_mean(str(value), DTYPES, known),
        )
    if name == "lr" and isinstance(value, int | float) and value < 0:
        return Diagnostic(
            "G203",
            "`lr` multiplies the learning rate, at least 0",
            Label(span, f"this is {value:g}"),
        )
    return None


def _reject(
    e: Elaborator, found: _Arguments, signature: Signature, param: Param, value: Sem, span: Span
) -> None:
    found.failed = True
    if not e.tables.is_poisoned(value):
        e.sink.add(wrong_kind(signature, param, value, span))
