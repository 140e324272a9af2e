"""The `dims` section: named axes and numbers, after overrides."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from giantdsl.attrs import Attr
from giantdsl.diagnostics import Diagnostic, Label, Sink, did_you_mean, nearest
from giantdsl.ir.types import Axis, AxisKind
from giantdsl.sema.scalars import Failed, evaluate
from giantdsl.syntax import ast

MAX_SIZE = 2**48
MAX_PARTS = 256


class Dims:
    """Axes and other numbers by name. `names` holds all that has a value."""

    def __init__(self) -> None:
        self.axes: dict[str, Axis] = {}
        self.scalars: dict[str, Attr] = {}
        self.names: dict[str, Attr] = {}
        self.failed: set[str] = set()
        self.declared: dict[str, ast.DimDecl] = {}


def build_dims(decls: Iterable[ast.DimDecl], overrides: Mapping[str, ast.Expr], sink: Sink) -> Dims:
    """Evaluate the declarations in order. `overrides` replace sizes that are plain numbers."""
    dims = Dims()
    for decl in decls:
        name = decl.name.text
        if name in dims.declared:
            first = dims.declared[name].name
            sink.add(
                Diagnostic(
                    "G105",
                    f"`{name}` is declared twice",
                    Label(decl.name.span, "again here"),
                    "one line for each name",
                    (Label(first.span, "first here"),),
                )
            )
            continue
        dims.declared[name] = decl
        _declare(decl, overrides.get(name), dims, sink)
    _check_overrides(overrides, dims, sink)
    return dims


def _declare(decl: ast.DimDecl, override: ast.Expr | None, dims: Dims, sink: Sink) -> None:
    name = decl.name.text
    kind = _kind(decl, sink)
    if name.endswith("'"):
        sink.add(
            Diagnostic(
                "G101",
                f"`{name}` cannot be declared",
                Label(decl.name.span, "a primed axis"),
                f"declare `{name[:-1]}`; `{name}` is then another axis of the same size",
            )
        )
        return
    if override is not None and decl.size is not None and _derived(decl.size, dims):
        sink.add(_derived_override(name, decl.size, override))
        override = None
    expr = decl.size if override is None else override
    if expr is None:
        if kind in (AxisKind.BATCH, AxisKind.RAGGED):
            dims.axes[name] = Axis(name, kind, None, None, (), (), decl.span)
        else:
            sink.add(
                Diagnostic(
                    "G205",
                    f"`{name}` has no size",
                    Label(decl.name.span, "a size is missing"),
                    f"write `{decl.span.text} = 1024`; "
                    "only a batch axis and a ragged axis go without",
                )
            )
            dims.failed.add(name)
        return
    if kind is AxisKind.BATCH:
        sink.add(
            Diagnostic(
                "G205",
                f"`{name}` is a batch axis, its size comes from `train`",
                Label(expr.span, "a size here would be a second one"),
                "leave the size out; set `batch` and `microbatch` in `train`",
            )
        )
    _sized(decl, kind, expr, dims, sink)


def _sized(decl: ast.DimDecl, kind: AxisKind, expr: ast.Expr, dims: Dims, sink: Sink) -> None:
    name = decl.name.text
    logical: int | None = None
    if isinstance(expr, ast.Call) and expr.function.text == "pad" and expr.args:
        inner = evaluate(expr.args[0].value, dims.names, Sink())
        logical = inner if isinstance(inner, int) and not isinstance(inner, bool) else None
    value = evaluate(expr, dims.names, _quiet(expr, dims, sink))
    if isinstance(value, Failed):
        dims.failed.add(name)
        return
    if isinstance(value, float) and value.is_integer() and abs(value) < MAX_SIZE:
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        _number(decl, expr, value, dims, sink)
        return
    is_axis = decl.kind is not None or value >= 1
    if (decl.kind is not None and value < 1) or value > MAX_SIZE:
        sink.add(
            Diagnostic(
                "G205",
                f"`{name}` cannot be {value}",
                Label(expr.span, f"this is {value}"),
                "a size is at least 1" if value < 1 else f"a size is at most {MAX_SIZE:,}",
            )
        )
        dims.failed.add(name)
        return
    dims.names[name] = value
    if is_axis:
        padded = logical is not None and logical != value
        dims.axes[name] = Axis(
            name,
            kind,
            value,
            logical if padded else None,
            _factors(expr, dims, "*"),
            _factors(expr, dims, "+"),
            decl.span,
        )
    else:
        dims.scalars[name] = value


def _number(decl: ast.DimDecl, expr: ast.Expr, value: Attr, dims: Dims, sink: Sink) -> None:
    """A value that is no whole number: legal as a plain scalar, never as a derived size."""
    name = decl.name.text
    derived = isinstance(value, float) and _derived(expr, dims)
    if decl.kind is not None or (derived and _means_size(expr, dims)):
        shown = f"{value:g}" if isinstance(value, float) else str(value)
        sink.add(
            Diagnostic(
                "G205",
                f"`{name}` is not a whole number",
                Label(expr.span, f"this is {shown}"),
                f"pick values so that `{expr.span.text}` comes out whole"
                if derived
                else "a size is a whole number",
            )
        )
        dims.failed.add(name)
        return
    dims.scalars[name] = value
    dims.names[name] = value


def _kind(decl: ast.DimDecl, sink: Sink) -> AxisKind:
    if decl.kind is None:
        return AxisKind.FEATURE
    try:
        return AxisKind(decl.kind.text)
    except ValueError:
        kinds = [kind.value for kind in AxisKind]
        sink.add(
            Diagnostic(
                "G101",
                f"no kind of axis `{decl.kind.text}`",
                Label(decl.kind.span, "not a kind"),
                did_you_mean(decl.kind.text, kinds, "an axis is batch, seq, feature or ragged"),
            )
        )
        return AxisKind.FEATURE


def _quiet(expr: ast.Expr, dims: Dims, sink: Sink) -> Sink:
    """A sink that swallows what only follows from an earlier size that failed."""
    return Sink() if any(name in dims.failed for name in _names_in(expr)) else sink


def _names_in(expr: ast.Expr) -> set[str]:
    if isinstance(expr, ast.Path):
        return {expr.text}
    if isinstance(expr, ast.Binary):
        return _names_in(expr.left) | _names_in(expr.right)
    if isinstance(expr, ast.Unary):
        return _names_in(expr.operand)
    if isinstance(expr, ast.Ternary):
        return _names_in(expr.then) | _names_in(expr.condition) | _names_in(expr.otherwise)
    if isinstance(expr, ast.Call):
        return {name for arg in expr.args for name in _names_in(arg.value)}
    return set()


def _derived(expr: ast.Expr, dims: Dims) -> bool:
    return bool(_names_in(expr) & dims.declared.keys())


def _means_size(expr: ast.Expr, dims: Dims) -> bool:
    """`d / 7` is meant as a size; `1 / sqrt(d)`, `0.1 * d` and products of such are numbers."""
    if isinstance(expr, ast.Binary):
        return _means_size(expr.left, dims) and _means_size(expr.right, dims)
    if isinstance(expr, ast.Path):
        return isinstance(dims.names.get(expr.text), int)
    return isinstance(expr, ast.Number) and isinstance(expr.value, int)


def _factors(expr: ast.Expr, dims: Dims, op: str) -> tuple[str, ...]:
    """Axis names of a product or sum of axes; () for anything else."""
    if not isinstance(expr, ast.Binary) or expr.op != op:
        return ()
    found: list[str] = []
    for side in (expr.left, expr.right):
        if isinstance(side, ast.Path) and side.text in dims.axes:
            axis = dims.axes[side.text]
            found += (axis.factors if op == "*" else axis.terms) or (side.text,)
        else:
            inner = _factors(side, dims, op)
            if not inner:
                return ()
            found += inner
    # A factor twice could not be told apart in a tensor; the limit keeps doubling chains short.
    unclear = op == "*" and len(set(found)) < len(found)
    return () if unclear or len(found) > MAX_PARTS else tuple(found)


def _derived_override(name: str, size: ast.Expr, override: ast.Expr) -> Diagnostic:
    return Diagnostic(
        "G601",
        f"`dims.{name}` is derived and cannot be set",
        Label(override.span, "an override"),
        f"set what it is derived from: `{name} = {size.span.text}`",
        (Label(size.span, "derived here"),),
    )


def _check_overrides(overrides: Mapping[str, ast.Expr], dims: Dims, sink: Sink) -> None:
    for name, expr in overrides.items():
        if name not in dims.declared:
            near = nearest(name, dims.declared)
            sink.add(
                Diagnostic(
                    "G601",
                    f"`dims` has no `{name}`",
                    Label(expr.span, "an override"),
                    f"did you mean `dims.{near}`?"
                    if near
                    else "known: " + ", ".join(dims.declared),
                )
            )
