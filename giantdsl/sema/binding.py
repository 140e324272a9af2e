"""What a call of a block or of a Python operation binds: axes, tensors, compile-time values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from giantdsl.attrs import Attr, Config
from giantdsl.diagnostics import Diagnostic, Label, did_you_mean
from giantdsl.ir.nodes import Extern, Op, Value
from giantdsl.ir.types import BOOL, FLOAT, INT, ROUTE, TensorType, base_axis
from giantdsl.sema.axes import resolve_axes, resolve_dtype, same_axes
from giantdsl.sema.fit import fit_call
from giantdsl.sema.scalars import FAILED, Failed
from giantdsl.sema.scope import AxisArg, Frame, Sem, as_attr, describe
from giantdsl.sema.signature import missing, permute, too_many
from giantdsl.source import Span
from giantdsl.syntax import ast

if TYPE_CHECKING:
    from giantdsl.sema.elaborate import Elaborator


@dataclass(slots=True)
class Bound:
    """A block's parameters under one call. `tensors` are the caller's values in order of `env`."""

    generics: dict[str, str] = field(default_factory=dict)
    rest: tuple[str, ...] | None = None
    per: tuple[str, ...] = ()
    env: dict[str, Sem] = field(default_factory=dict)
    tensors: list[Value] = field(default_factory=list)

    @property
    def takes_axes(self) -> bool:
        """Whether types inside depend on the caller's; else they are what the block declares."""
        return bool(self.generics) or self.rest is not None

    def key(self) -> object:
        """Equal for calls that mean the same function."""
        env = tuple(
            (name, v.type if isinstance(v, Value) else (type(v).__name__, v))
            for name, v in self.env.items()
        )
        return tuple(self.generics.items()), self.rest, self.per, env

    def statics(self) -> dict[str, Attr]:
        """The compile-time arguments: what is no tensor."""
        found: dict[str, Attr] = {}
        for name, sem in self.env.items():
            attr = as_attr(sem)
            if not isinstance(sem, Value) and not isinstance(attr, Failed):
                found[name] = attr
        return found


def bind_block(e: Elaborator, frame: Frame, call: ast.Call, block: ast.Block) -> Bound | None:
    """Match a call with a block's parameters, or None after reporting."""
    name = block.name.text
    generics = [g.text for g in block.generics]
    bound = Bound(per=frame.per)
    given = _given(e, frame, call, name, block.params, generics, bound)
    if given is None:
        return None
    good = True
    tensors: list[tuple[ast.Param, Value]] = []
    for param in block.params:
        key = param.name.text
        if key not in given:
            value = _default(e, frame, call, name, param)
            if isinstance(value, Failed):
                return None
            bound.env[key] = value
            continue
        sem, span = given[key]
        if isinstance(sem, Failed):
            good = False
        elif param.axes is not None and sem is not None:
            good = _tensor(e, frame, bound, param, sem, name, generics, span, tensors) and good
        elif param.axes is None and isinstance(sem, Value):
            e.sink.add(
                Diagnostic(
                    "G232",
                    f"`{key}` of `{name}` is a compile-time value",
                    Label(span, f"this is {sem.type}"),
                    f"give it axes to take a tensor: `{key}[..]`",
                )
            )
            good = False
        else:
            bound.env[key] = sem.size if isinstance(sem, AxisArg) else sem
    for generic in generics:
        if generic not in bound.generics and good:
            e.sink.add(
                Diagnostic(
                    "G207",
                    f"cannot tell which axis `{generic}` of `{name}` is",
                    Label(call.span, "not found from the arguments"),
                    f"pass it: {generic}=…",
                )
            )
            good = False
    if not good:
        return None
    return bound if _convert(e, frame, bound, tensors, call.span) else None


def _convert(
    e: Elaborator,
    frame: Frame,
    bound: Bound,
    tensors: Sequence[tuple[ast.Param, Value]],
    span: Span,
) -> bool:
    """Give each tensor the axes its parameter declares, in that order."""
    inner = Frame(name="", library=frame.library, generics=bound.generics, rest=bound.rest)
    for param, value in tensors:
        assert param.axes is not None
        axes = resolve_axes(e.tables, inner, param.axes)
        if axes is None:
            return False
        renamed = value
        if same_axes(axes[0], value.type.axes):
            renamed = permute(e.tables, frame, value, axes[0], span)
        dtype = resolve_dtype(e.tables, inner, param.dtype)
        if dtype is None:
            return False
        dtype = value.type.dtype if dtype == "int" else dtype
        made = Value(param.name.text, TensorType(axes[0], dtype, axes[1]), param.span)
        if bound.takes_axes and e.tables.is_poisoned(value):
            e.tables.poisoned.add(id(made))
        e.tables.keep_alive.append(made)
        bound.env[param.name.text] = made
        bound.tensors.append(renamed)
    return True


def _given(
    e: Elaborator,
    frame: Frame,
    call: ast.Call,
    name: str,
    params: Sequence[ast.Param],
    generics: list[str],
    bound: Bound,
) -> dict[str, tuple[Sem, Span]] | None:
    """The arguments by parameter name; axes passed for generics and `per` go into `bound`."""
    names = [p.name.text for p in params]
    given: dict[str, tuple[Sem, Span]] = {}
    position = 0
    good = True
    for arg in call.args:
        sem = e.expr(frame, arg.value)
        if arg.name is None:
            if position >= len(names):
                count = sum(1 for a in call.args if a.name is None)
                e.sink.add(too_many(name, names, count, call.span))
                return None
            given[names[position]] = (sem, arg.value.span)
            position += 1
            continue
        key = arg.name.text
        if key in generics or key == "per":
            good = _axis(e, name, key, sem, arg.value.span, bound) and good
        elif key not in names:
            takes = ", ".join([*names, *generics])
            e.sink.add(
                Diagnostic(
                    "G207",
                    f"`{name}` has no parameter `{key}`",
                    Label(arg.name.span, "unknown"),
                    did_you_mean(key, [*names, *generics], f"it has: {takes}"),
                )
            )
            good = False
        elif key in given:
            e.sink.add(
                Diagnostic(
                    "G207",
                    f"`{key}` is given twice",
                    Label(arg.span, "again here"),
                    None,
                    (Label(given[key][1], "first here"),),
                )
            )
            good = False
        else:
            given[key] = (sem, arg.value.span)
    return given if good else None


def _axis(e: Elaborator, name: str, key: str, sem: Sem, span: Span, bound: Bound) -> bool:
    if isinstance(sem, AxisArg):
        if key == "per":
            bound.per = (*bound.per, sem.name)
        else:
            bound.generics[key] = sem.name
        return True
    if not isinstance(sem, Failed):
        e.sink.add(
            Diagnostic(
                "G207",
                f"`{key}` of `{name}` is an axis",
                Label(span, f"this is {describe(sem)}"),
                "name an axis of `dims`",
            )
        )
    return False


def _default(e: Elaborator, frame: Frame, call: ast.Call, name: str, param: ast.Param) -> Sem:
    if param.default is None:
        e.sink.add(missing(name, param.name.text, call.span))
        return FAILED
    outer = Frame(name="", library=frame.library)
    value = e.expr(outer, param.default)
    return value.size if isinstance(value, AxisArg) else value


def _tensor(
    e: Elaborator,
    frame: Frame,
    bound: Bound,
    param: ast.Param,
    sem: Sem,
    name: str,
    generics: list[str],
    span: Span,
    tensors: list[tuple[ast.Param, Value]],
) -> bool:
    key = param.name.text
    if not isinstance(sem, Value):
        e.sink.add(
            Diagnostic(
                "G232", f"`{key}` of `{name}` is a tensor", Label(span, f"this is {describe(sem)}")
            )
        )
        return False
    inner = Frame(name="", library=frame.library, generics=dict(bound.generics))
    fits = _unify(param, sem, generics, bound) and _unify_dtype(param, sem, generics, bound)
    if not fits:
        known = param.dtype is None or param.dtype.text in generics
        known = known or resolve_dtype(e.tables, inner, param.dtype) is not None
        if known and not e.tables.is_poisoned(sem):
            e.sink.add(_no_match(param, sem, name, span, bound))
        return False
    bound.env[key] = None
    tensors.append((param, sem))
    return True


def _no_match(param: ast.Param, sem: Value, name: str, span: Span, bound: Bound) -> Diagnostic:
    """The parameter's axes are shown as far as this call has bound them."""
    assert param.axes is not None
    wanted = ", ".join(
        (".." if bound.rest is None else ", ".join(bound.rest))
        if isinstance(a, ast.RestAxes)
        else bound.generics.get(a.name.text, a.name.text)
        for a in param.axes.axes
        if not isinstance(a, ast.RestAxes) or bound.rest != ()
    )
    dtype = f": {param.dtype.text}" if param.dtype is not None else ""
    found = str(sem.type)
    if dtype and sem.type.dtype == "float":
        found += ": float"
    elif not dtype and sem.type.dtype != "float":
        dtype = ": float"
    return Diagnostic(
        "G201",
        f"`{param.name.text}` of `{name}` is [{wanted}]{dtype}, got {found}",
        Label(span, f"this is {found}"),
    )


def _unify(param: ast.Param, value: Value, generics: list[str], bound: Bound) -> bool:
    """Bind generics and `..` so that the parameter's axes are the value's."""
    assert param.axes is not None
    have = list(value.type.axes)
    wanted = list(param.axes.axes)
    rest_at = next((i for i, a in enumerate(wanted) if isinstance(a, ast.RestAxes)), None)
    named = [a.name.text for a in wanted if isinstance(a, ast.AxisRef)]
    if rest_at is None and not any(base_axis(n) in generics for n in named):
        return same_axes(tuple(named), tuple(have))
    if rest_at is not None:
        extra = len(have) - len(named)
        if extra < 0:
            return False
        rest = tuple(have[rest_at : rest_at + extra])
        have = have[:rest_at] + have[rest_at + extra :]
        if bound.rest is not None and set(bound.rest) != set(rest):
            return False
        bound.rest = bound.rest if bound.rest is not None else rest
    if len(have) != len(named):
        return False
    trial = dict(bound.generics)
    for name, axis in zip(named, have, strict=True):
        if base_axis(name) in generics:
            known = trial.setdefault(
                base_axis(name), axis if name == base_axis(name) else base_axis(axis)
            )
            if base_axis(known) != base_axis(axis):
                return False
        elif name != axis:
            return False
    bound.generics.update(trial)
    return True


def _unify_dtype(param: ast.Param, value: Value, generics: list[str], bound: Bound) -> bool:
    """Bind a generic that the numbers index; else the types must be the same."""
    dtype, found = param.dtype.text if param.dtype is not None else FLOAT, value.type.dtype
    indexes = found not in (FLOAT, BOOL, ROUTE)
    if dtype in generics and indexes and found != INT:
        return bound.generics.setdefault(dtype, found) == found
    return dtype == found or (dtype == INT and indexes)


def extern_call(e: Elaborator, frame: Frame, call: ast.Call, extern: ast.Extern) -> Sem:
    """A call of a Python operation: tensors bound like a block's, the rest handed over."""
    name = extern.name.text
    generics = [g.text for g in extern.generics]
    bound = Bound()
    given = _given(e, frame, call, name, extern.params, generics, bound)
    if given is None:
        return FAILED
    statics: list[tuple[str, Attr]] = []
    tensors: list[tuple[ast.Param, Value]] = []
    good = True
    for param in extern.params:
        key = param.name.text
        sem, span = (
            given[key] if key in given else (_default(e, frame, call, name, param), call.span)
        )
        if isinstance(sem, Failed):
            return FAILED
        if param.axes is not None and sem is not None:
            good = _tensor(e, frame, bound, param, sem, name, generics, span, tensors) and good
        elif isinstance(sem, Value):
            e.sink.add(_no_match_static(key, name, sem, span))
            good = False
        else:
            attr = as_attr(sem)
            statics.append((key, None if isinstance(attr, Failed) else attr))
    if not good or not _convert(e, frame, bound, tensors, call.span):
        return FAILED
    inner = Frame(name="", library=frame.library, generics=bound.generics, rest=bound.rest)
    results: list[Value] = []
    for type in extern.results:
        axes = resolve_axes(e.tables, inner, type.axes)
        if axes is None:
            return FAILED
        dtype = resolve_dtype(e.tables, inner, type.dtype)
        if dtype is None:
            return FAILED
        results.append(Value("", TensorType(axes[0], dtype), call.span))
    along = tuple(bound.generics.get(a.text, a.text) for a in extern.along)
    attrs: dict[str, Attr] = {
        "name": name,
        "statics": Config(name, (), tuple(statics)),
        "along": along,
    }
    op = Op("extern", tuple(bound.tensors), tuple(results), attrs, (), "", call.span)
    frame.statements.append(op)
    e.tables.keep_alive += results
    for result in results:
        e.tables.producers[id(result)] = op
    if len(results) > 1:
        return tuple(results)
    return fit_call(e.tables, frame, results[0], call)


def _no_match_static(key: str, name: str, sem: Value, span: Span) -> Diagnostic:
    return Diagnostic(
        "G232",
        f"`{key}` of `{name}` is a compile-time value",
        Label(span, f"this is {sem.type}"),
    )


def make_extern(extern: ast.Extern) -> Extern:
    along = tuple(a.text for a in extern.along)
    return Extern(extern.name.text, extern.target.value, along, extern.span)
