"""From tree to program: names bound, axes checked, blocks instantiated, loops kept.

One recursive walk: expressions here, statements in `statements.py` and `loops.py`, blocks in
`blocks.py` and `binding.py`. What a builtin means is in `builtins/`, arithmetic in `broadcast.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

from giantdsl.attrs import Attr
from giantdsl.diagnostics import Diagnostic, Fix, Label, did_you_mean, nearest
from giantdsl.ir.nodes import Count, Function, Value
from giantdsl.ir.types import ROUTE
from giantdsl.sema import binding, blocks, builtin_calls, statements
from giantdsl.sema.axes import resolve_axes
from giantdsl.sema.broadcast import negate, tensor_binary, unsized
from giantdsl.sema.builtins import BUILTINS
from giantdsl.sema.indexing import index
from giantdsl.sema.scalars import (
    FAILED,
    FUNCTIONS,
    Failed,
    apply_binary,
    apply_unary,
    call_function,
    evaluate,
    not_compile_time,
    unknown_value,
)
from giantdsl.sema.scope import AxisArg, Frame, Sem, Tables, as_attr, describe
from giantdsl.source import Span
from giantdsl.syntax import ast


class Elaborator:
    """Elaborates one spec. `functions` memoises blocks by how they are used."""

    def __init__(self, tables: Tables) -> None:
        self.tables = tables
        self.sink = tables.sink
        self.functions: dict[object, Function] = {}
        self.row_means: dict[int, dict[int, Count | None]] = {}
        self.open_blocks: list[ast.Block] = []
        self.seen_blocks: set[int] = set()
        self.read_blocks: set[int] = set()
        self.num_followed = 0
        self.reads_again = False
        self.gave_up = False

    # ---- values ---------------------------------------------------------------------------

    def static_names(self, frame: Frame) -> Mapping[str, Attr]:
        """Everything compile-time expressions may name here."""
        names = dict(self.tables.dims.names)
        for name, sem in frame.env.items():
            attr = as_attr(sem)
            unsized = isinstance(sem, AxisArg) and attr is None
            if not isinstance(sem, Value) and not isinstance(attr, Failed) and not unsized:
                names[name] = attr
        for name, axis in frame.generics.items():
            size = self.tables.size(axis)
            if size is not None:
                names[name] = size
        return names

    def number(self, frame: Frame, expr: ast.Expr) -> int | None:
        """A whole number known at compile time, or None after reporting."""
        value = self.expr(frame, expr)
        if isinstance(value, AxisArg):
            value = value.size
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        if isinstance(value, Value):
            self.sink.add(not_compile_time(expr.span))
        elif not isinstance(value, Failed):
            shown = describe(value)
            self.sink.add(
                Diagnostic(
                    "G203", "a whole number is needed here", Label(expr.span, f"this is {shown}")
                )
            )
        return None

    def expr(
        self,
        frame: Frame,
        expr: ast.Expr,
        hint: str | None = None,
        wanted: tuple[str, ...] | None = None,
    ) -> Sem:
        """The value of an expression. `hint` names a layer that has no `as`; `wanted` are the
        axes the target declares."""
        if isinstance(expr, ast.Path):
            return self.path(frame, expr)
        if isinstance(expr, ast.Call):
            return self.call(frame, expr, hint)
        if isinstance(expr, ast.Binary):
            return self.binary(frame, expr)
        if isinstance(expr, ast.Unary):
            return self.unary(frame, expr)
        if isinstance(expr, ast.Ternary):
            condition = self.condition(frame, expr.condition)
            if condition is None:
                return FAILED
            return self.expr(frame, expr.then if condition else expr.otherwise, hint, wanted)
        if isinstance(expr, ast.Index):
            return self.index(frame, expr, wanted)
        if isinstance(expr, ast.ListExpr):
            items = [self.expr(frame, item) for item in expr.items]
            return tuple(items) if not any(isinstance(i, Failed) for i in items) else FAILED
        return evaluate(expr, {}, self.sink)

    def path(self, frame: Frame, expr: ast.Path) -> Sem:
        name = expr.text
        if name in frame.env:
            return frame.env[name]
        axis = frame.generics.get(name)
        if axis is not None:
            return AxisArg(axis, self.tables.size(axis))
        dims = self.tables.dims
        plain = name[:-1] if name.endswith("'") else name
        if plain in dims.axes:
            return AxisArg(name, dims.axes[plain].size)
        if name in dims.scalars:
            return dims.scalars[name]
        if name in dims.failed:
            return FAILED
        if name in frame.gone:
            self.sink.add(
                Diagnostic(
                    "G102",
                    f"`{name}` is known inside the `repeat` only",
                    Label(expr.span, "outside of it"),
                    f"give `{name}` a value before the loop if the last one is wanted after it",
                    (Label(frame.gone[name], "defined here"),),
                )
            )
            return FAILED
        known = {**dims.names, **dims.axes, **frame.env, **frame.generics}
        self.sink.add(unknown_value(name, known, expr.span))
        return FAILED

    def condition(self, frame: Frame, expr: ast.Expr) -> bool | None:
        """A compile-time truth, or None after reporting."""
        value = self.expr(frame, expr)
        if isinstance(value, Failed):
            return None
        if isinstance(value, Value):
            self.sink.add(
                Diagnostic(
                    "G213",
                    "the condition depends on tensor data",
                    Label(expr.span, f"this is {value.type}"),
                    "conditions are decided when the model is compiled",
                )
            )
            return None
        return bool(value.size if isinstance(value, AxisArg) else value)

    def unary(self, frame: Frame, expr: ast.Unary) -> Sem:
        value = self.expr(frame, expr.operand)
        if isinstance(value, Value):
            if expr.op == "-":
                return negate(self.tables, frame, value, expr.span)
            self.sink.add(not_compile_time(expr.span))
            return FAILED
        return apply_unary(expr.op, self._scalar(value, expr.operand.span), expr.span, self.sink)

    def binary(self, frame: Frame, expr: ast.Binary) -> Sem:
        left = self.expr(frame, expr.left)
        right = self.expr(frame, expr.right)
        if isinstance(left, Failed) or isinstance(right, Failed):
            return FAILED
        if isinstance(left, Value) or isinstance(right, Value):
            if expr.op in ("==", "!=") and (left is None or right is None):
                return expr.op == "!="
            if expr.op in ("and", "or"):
                self.sink.add(not_compile_time(expr.span))
                return FAILED
            return tensor_binary(self.tables, frame, expr.op, left, right, expr.span)
        a = self._scalar(left, expr.left.span)
        b = self._scalar(right, expr.right.span)
        return apply_binary(expr.op, a, b, expr.span, self.sink)

    def _scalar(self, value: Sem, span: Span) -> Attr | Failed:
        if isinstance(value, AxisArg):
            if value.size is None:
                self.sink.add(unsized(value, span))
                return FAILED
            return value.size
        return as_attr(value)

    def index(self, frame: Frame, expr: ast.Index, wanted: tuple[str, ...] | None) -> Sem:
        value = self.expr(frame, expr.value)
        for item in expr.items:
            if isinstance(value, Failed):
                return FAILED
            if not isinstance(value, Value) or value.type.dtype == ROUTE:
                self.sink.add(
                    Diagnostic(
                        "G206",
                        f"only tensors are indexed, this is {describe(value)}",
                        Label(expr.value.span, "no tensor"),
                    )
                )
                return FAILED
            value = index(self.tables, frame, value, item, lambda e: self.number(frame, e), wanted)
        return value

    # ---- calls ----------------------------------------------------------------------------

    def call(self, frame: Frame, call: ast.Call, hint: str | None) -> Sem:
        name = call.function.text
        block = frame.library.blocks.get(name)
        if block is not None:
            return blocks.call_block(self, frame, call, block)
        extern = frame.library.externs.get(name)
        if extern is not None:
            return binding.extern_call(self, frame, call, extern)
        if name in FUNCTIONS and (name not in BUILTINS or self._is_scalar_call(frame, call)):
            return self._function(frame, call)
        builtin = BUILTINS.get(name)
        if builtin is not None:
            results = builtin_calls.call_builtin(self, frame, call, builtin, [hint], [call.result])
            return results[0]
        known = {*frame.library.blocks, *frame.library.externs, *BUILTINS, *FUNCTIONS}
        near = nearest(name, known)
        self.sink.add(
            Diagnostic(
                "G103",
                f"no block or operation `{name}`",
                Label(call.function.span, "not defined"),
                did_you_mean(name, known, "define it with `block`, or import it"),
                fixes=(Fix(call.function.span, near),) if near else (),
            )
        )
        return self.declared(frame, call)

    def declared(self, frame: Frame, call: ast.Call) -> Sem:
        """What a call that cannot be read was declared to give."""
        if call.result is None:
            return FAILED
        axes = resolve_axes(self.tables, frame, call.result)
        return self.tables.poison(axes[0], call.span) if axes is not None else FAILED

    def _is_scalar_call(self, frame: Frame, call: ast.Call) -> bool:
        """`max(4, d)` is arithmetic, `max(x, over=d)` is an operation on a tensor."""
        if any(arg.name is not None for arg in call.args) or call.result is not None:
            return False
        first = call.args[0].value if call.args else None
        while isinstance(first, ast.Unary | ast.Index | ast.Binary):
            if isinstance(first, ast.Binary):
                if self._mentions_tensor(frame, first.right):
                    return False
                first = first.left
            else:
                first = first.operand if isinstance(first, ast.Unary) else first.value
        return first is None or not self._mentions_tensor(frame, first)

    def _mentions_tensor(self, frame: Frame, expr: ast.Expr) -> bool:
        if isinstance(expr, ast.Path):
            return isinstance(frame.env.get(expr.text), Value)
        return isinstance(expr, ast.Call | ast.Index) and not (
            isinstance(expr, ast.Call)
            and expr.function.text in FUNCTIONS
            and self._is_scalar_call(frame, expr)
        )

    def _function(self, frame: Frame, call: ast.Call) -> Sem:
        values: list[Attr] = []
        for arg in call.args:
            value = self._scalar_of(frame, arg.value)
            if isinstance(value, Failed):
                return FAILED
            values.append(value)
        name = call.function.text
        return call_function(name, values, {}, call.span, self.sink)

    def _scalar_of(self, frame: Frame, expr: ast.Expr) -> Attr | Failed:
        value = self.expr(frame, expr)
        if isinstance(value, Value):
            self.sink.add(not_compile_time(expr.span))
            return FAILED
        return self._scalar(value, expr.span)

    # ---- statements -----------------------------------------------------------------------

    @property
    def is_exhausted(self) -> bool:
        """Whether following loops took more statements than a spec can sensibly have."""
        return self.num_followed > statements.MAX_FOLLOWED

    def run_body(self, frame: Frame, body: ast.Body) -> list[tuple[Sem, Span]] | None:
        return statements.run_body(self, frame, body)
