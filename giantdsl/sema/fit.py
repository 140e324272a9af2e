"""A value against the axes and type it is declared to have."""

from __future__ import annotations

from giantdsl.diagnostics import Diagnostic, Label
from giantdsl.ir.nodes import Value
from giantdsl.ir.types import TensorType
from giantdsl.sema.axes import mismatch, resolve_axes, same_axes
from giantdsl.sema.scalars import FAILED, Failed
from giantdsl.sema.scope import Frame, Sem, Tables, describe
from giantdsl.sema.signature import permute
from giantdsl.source import Span
from giantdsl.syntax import ast


def fit_call(tables: Tables, frame: Frame, value: Value, call: ast.Call) -> Sem:
    """A call's result in the axes its `->` declares."""
    if call.result is None:
        return value
    declared = resolve_axes(tables, frame, call.result)
    if declared is None:
        return FAILED
    return fit(tables, frame, value, declared[0], call.result.span)


def fit(
    tables: Tables,
    frame: Frame,
    value: Sem,
    axes: tuple[str, ...],
    span: Span,
    dtype: str | None = None,
) -> Sem:
    """`value` if it has these axes, in this order; else a report and a stand-in."""
    if isinstance(value, Failed):
        return tables.poison(axes, span)
    if not isinstance(value, Value) or not same_axes(value.type.axes, axes):
        if not tables.is_poisoned(value):
            tables.sink.add(mismatch(axes, describe(value), span))
        return tables.poison(axes, span)
    if dtype is not None and not _dtype_fits(dtype, value.type.dtype):
        if not tables.is_poisoned(value):
            tables.sink.add(_dtype_mismatch(axes, dtype, value, span))
        return tables.poison(axes, span)
    return permute(tables, frame, value, axes, span)


def _dtype_fits(declared: str, found: str) -> bool:
    return declared == found or (declared == "int" and found not in ("float", "bool", "route"))


def _dtype_mismatch(axes: tuple[str, ...], dtype: str, value: Value, span: Span) -> Diagnostic:
    expected = str(TensorType(axes, dtype)) + (": float" if dtype == "float" else "")
    found = str(value.type) + (": float" if value.type.dtype == "float" else "")
    return Diagnostic(
        "G231", f"expected {expected}, found {found}", Label(span, f"this is {found}")
    )
