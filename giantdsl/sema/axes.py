"""Axes in brackets: names to axes, generics bound, `..` filled in."""

from __future__ import annotations

from giantdsl.diagnostics import Diagnostic, Fix, Label, did_you_mean, nearest
from giantdsl.ir.types import BUILTIN_DTYPES, FLOAT, AxisKind, base_axis
from giantdsl.sema.scope import Frame, Tables, shape
from giantdsl.source import Span
from giantdsl.syntax import ast

MESH_AXES = ("dp", "tp", "pp", "cp", "ep")
Layout = tuple[tuple[str, str], ...]


def resolve_axes(
    tables: Tables, frame: Frame, axes: ast.Axes, rest: tuple[str, ...] | None = None
) -> tuple[tuple[str, ...], Layout] | None:
    """The axes a type names and the layouts written on them, or None after reporting.

    `rest` is what `..` stands for; where it is None the frame's own is used.
    """
    found: list[str] = []
    at: list[tuple[str, str]] = []
    good = True
    for ref in axes.axes:
        if isinstance(ref, ast.RestAxes):
            known = rest if rest is not None else frame.rest
            found += [a for a in (known or ()) if a not in found]
            continue
        name = resolve_axis(tables, frame, ref.name)
        if name is None:
            good = False
            continue
        if name in found:
            name = _second(tables, frame, ref, name, found)
            if name is None:
                good = False
                continue
        found.append(name)
        if ref.mesh is not None:
            good = _layout(tables, name, ref.mesh, at) and good
    return (tuple(found), tuple(at)) if good else None


def resolve_axis(tables: Tables, frame: Frame, name: ast.Name) -> str | None:
    """The axis a name stands for here, or None after reporting G101."""
    text = name.text
    if text in frame.generics:
        return frame.generics[text]
    if base_axis(text) in frame.generics:
        bound = frame.generics[base_axis(text)]
        return bound if bound.endswith("'") else bound + "'"
    if base_axis(text) in tables.dims.axes:
        if text.endswith("'") and tables.kind(text) in (AxisKind.BATCH, AxisKind.RAGGED):
            tables.sink.add(_no_second(name, tables.kind(text)))
            return None
        return text
    if base_axis(text) in tables.dims.failed:
        return None
    tables.sink.add(_no_axis(tables, frame, name))
    return None


def resolve_dtype(tables: Tables, frame: Frame, name: ast.Name | None) -> str | None:
    """The type a declaration names, float if it names none; None after reporting G102."""
    text = name.text if name is not None else FLOAT
    if name is None or text in BUILTIN_DTYPES:
        return text
    if text in tables.dims.axes:
        if tables.size(text) is not None:
            return text
        tables.sink.add(
            Diagnostic(
                "G102",
                f"numbers cannot index `{text}`",
                Label(name.span, f"a {tables.kind_word(text)} axis, it has no size"),
                "name an axis with a size, e.g. `tokens[b, s]: vocab`",
            )
        )
        return None
    if text in frame.generics:
        return frame.generics[text]
    if text not in tables.dims.failed:
        known = [*BUILTIN_DTYPES, *tables.dims.axes, *frame.generics]
        tables.sink.add(
            Diagnostic(
                "G102",
                f"unknown type `{text}`",
                Label(name.span, "no type and no axis"),
                did_you_mean(
                    text,
                    known,
                    "use float, int, bool or the axis the numbers index, "
                    "e.g. `tokens[b, s]: vocab`",
                ),
            )
        )
    return None


def _no_second(name: ast.Name, kind: AxisKind) -> Diagnostic:
    return Diagnostic(
        "G101",
        f"no axis `{name.text}`: `{base_axis(name.text)}` is a {kind.value} axis",
        Label(name.span, "there is no second one of its size"),
        "only axes with a size of their own have a primed twin",
    )


def _no_axis(tables: Tables, frame: Frame, name: ast.Name) -> Diagnostic:
    known = {*tables.dims.axes, *frame.generics}
    if name.text in tables.dims.scalars:
        shown = tables.dims.scalars[name.text]
        return Diagnostic(
            "G101",
            f"`{name.text}` is no axis",
            Label(name.span, f"this is {shown}"),
            "only whole numbers of at least 1 can be axes",
        )
    near = nearest(name.text, known)
    return Diagnostic(
        "G101",
        f"no axis `{name.text}`",
        Label(name.span, "not declared in `dims`"),
        did_you_mean(name.text, known, "declare its size in `dims`"),
        fixes=(Fix(name.span, near),) if near else (),
    )


def _second(
    tables: Tables, frame: Frame, ref: ast.AxisRef, name: str, found: list[str]
) -> str | None:
    """Two generics bound to one axis make a primed one; the same axis twice is an error."""
    primed = name + "'"
    if ref.name.text in frame.generics and not name.endswith("'") and primed not in found:
        return primed
    tables.sink.add(
        Diagnostic(
            "G208",
            f"axis `{name}` appears twice in one tensor",
            Label(ref.span, f"`{name}` again"),
            f"write the second one as `{base_axis(name)}'`: another axis of the same size",
            fixes=() if name.endswith("'") else (Fix(ref.name.span, primed),),
        )
    )
    return None


def _layout(tables: Tables, name: str, mesh: ast.Name, at: list[tuple[str, str]]) -> bool:
    if mesh.text not in MESH_AXES:
        tables.sink.add(
            Diagnostic(
                "G301",
                f"no mesh axis `{mesh.text}`",
                Label(mesh.span, "not a mesh axis"),
                did_you_mean(mesh.text, MESH_AXES, f"the mesh has {', '.join(MESH_AXES)}"),
            )
        )
        return False
    other = next((a for a, m in at if m == mesh.text), None)
    if other is not None:
        tables.sink.add(
            Diagnostic(
                "G315",
                f"`{other}@{mesh.text}` and `{name}@{mesh.text}` in one type",
                Label(mesh.span, f"{mesh.text} again"),
                "one axis of a tensor for each mesh axis",
            )
        )
        return False
    at.append((name, mesh.text))
    return True


def same_axes(left: tuple[str, ...], right: tuple[str, ...]) -> bool:
    return len(left) == len(right) and set(left) == set(right)


def mismatch(expected: tuple[str, ...], found: str, span: Span) -> Diagnostic:
    return Diagnostic(
        "G201", f"expected {shape(expected)}, found {found}", Label(span, f"this is {found}")
    )


def leading_axes(tables: Tables, axes: tuple[str, ...]) -> tuple[str, ...]:
    """The axes `..` stands for where no block parameter bound it: batch, seq and ragged ones."""
    return tuple(a for a in axes if tables.kind(a) is not AxisKind.FEATURE)
