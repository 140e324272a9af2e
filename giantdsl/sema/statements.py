"""Statements: assignment, return, loss, if, stage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from giantdsl.diagnostics import Diagnostic, Label
from giantdsl.ir.nodes import StageMark, Value
from giantdsl.sema import builtin_calls, losses
from giantdsl.sema.axes import resolve_axes, same_axes
from giantdsl.sema.builtins import BUILTINS
from giantdsl.sema.fit import fit
from giantdsl.sema.loops import run_repeat
from giantdsl.sema.scalars import FAILED, Failed
from giantdsl.sema.scope import Frame, Sem, describe, plural
from giantdsl.sema.signature import permute
from giantdsl.source import Span
from giantdsl.syntax import ast

if TYPE_CHECKING:
    from giantdsl.sema.elaborate import Elaborator

# What is read more than once: loops whose body depends on the index, blocks used in several ways.
# About a second's worth.
MAX_FOLLOWED = 10_000


def run_body(e: Elaborator, frame: Frame, body: ast.Body) -> list[tuple[Sem, Span]] | None:
    """Run statements; the values of a `return` with their places, or None."""
    for i, statement in enumerate(body.statements):
        e.num_followed += e.reads_again
        if e.is_exhausted:
            _too_large(e, statement.span)
            return None
        returned = run_statement(e, frame, statement)
        if returned is not None:
            rest = body.statements[i + 1 :]
            if rest and not isinstance(statement, ast.If):
                e.sink.add(
                    Diagnostic(
                        "G211",
                        "nothing runs after a `return`",
                        Label(rest[0].span, "never reached"),
                    )
                )
            return returned
    return None


def _too_large(e: Elaborator, span: Span) -> None:
    """Said once: everything after it only follows."""
    if not e.gave_up:
        e.gave_up = True
        e.sink.add(
            Diagnostic(
                "G215",
                "this spec is too large to check",
                Label(span, f"more than {MAX_FOLLOWED:,} statements when loops are followed"),
                "a `repeat` whose body does not use its index is read once, however often it runs; "
                "so is a block that is always used in the same way",
            )
        )


def run_statement(
    e: Elaborator, frame: Frame, statement: ast.Statement
) -> list[tuple[Sem, Span]] | None:
    if isinstance(statement, ast.Assign):
        run_assign(e, frame, statement)
    elif isinstance(statement, ast.Return):
        return run_return(e, frame, statement)
    elif isinstance(statement, ast.Loss):
        run_loss(e, frame, statement)
    elif isinstance(statement, ast.Repeat):
        run_repeat(e, frame, statement)
    elif isinstance(statement, ast.If):
        condition = e.condition(frame, statement.condition)
        branch = statement.then if condition else statement.otherwise
        if condition is not None and branch is not None:
            return run_body(e, frame, branch)
    else:
        mark_stage(e, frame, statement)
    return None


def run_return(e: Elaborator, frame: Frame, statement: ast.Return) -> list[tuple[Sem, Span]] | None:
    values = [(e.expr(frame, value), value.span) for value in statement.values]
    if frame.loop:
        e.sink.add(
            Diagnostic(
                "G211",
                "`return` inside a `repeat`",
                Label(statement.span, "a loop runs to its end"),
                "return after the loop",
            )
        )
        return None
    flat: list[tuple[Sem, Span]] = []
    for value, span in values:
        if isinstance(value, tuple) and value and isinstance(value[0], Value):
            flat += [(v, span) for v in value]
        else:
            flat.append((value, span))
    return flat


def run_loss(e: Elaborator, frame: Frame, statement: ast.Loss) -> None:
    value = e.expr(frame, statement.value)
    if e.tables.is_poisoned(value):
        return
    if not isinstance(value, Value) or value.type.axes or value.type.dtype != "float":
        e.sink.add(
            Diagnostic(
                "G212",
                f"a loss is one number, this is {describe(value)}",
                Label(statement.value.span, f"this is {describe(value)}"),
                "reduce it, e.g. mean(…)",
            )
        )
        return
    value.name = value.name or statement.name.text
    losses.add_loss(e.tables, frame, statement.name.text, value, statement.span)


def run_assign(e: Elaborator, frame: Frame, statement: ast.Assign) -> None:
    targets = statement.targets
    names = [t.name.text for t in targets]
    declared = [
        resolve_axes(e.tables, frame, t.axes) if t.axes is not None else None for t in targets
    ]
    values = _assigned_values(e, frame, statement, names, declared)
    if len(values) != len(names):
        e.sink.add(
            Diagnostic(
                "G209",
                f"{plural(len(names), 'name')} on the left, "
                f"{plural(len(values), 'value')} on the right",
                Label(statement.span, "one name for each value"),
            )
        )
        values = [FAILED] * len(names)
    for target, axes, value in zip(targets, declared, values, strict=True):
        _bind_target(e, frame, statement, target, axes[0] if axes is not None else None, value)


def _assigned_values(
    e: Elaborator,
    frame: Frame,
    statement: ast.Assign,
    names: list[str],
    declared: Sequence[tuple[tuple[str, ...], object] | None],
) -> list[Sem]:
    if statement.more_types:
        return _fused(e, frame, statement, names)
    fresh = len(names) == 1 and names[0] not in frame.env
    hint = names[0] if fresh else None
    wanted = declared[0][0] if declared[0] is not None else None
    value = e.expr(frame, statement.value, hint, wanted)
    several = isinstance(value, tuple) and any(isinstance(v, Value) for v in value)
    if len(names) == 1 and not several:
        return [value]
    if isinstance(value, tuple):
        return list(value)
    return [FAILED] * len(names) if isinstance(value, Failed) else [value]


def _fused(e: Elaborator, frame: Frame, statement: ast.Assign, names: list[str]) -> list[Sem]:
    """`q, k, v = linear(x) -> [..], [..], [..]`: one weight for each result."""
    call = statement.value
    builtin = BUILTINS.get(call.function.text) if isinstance(call, ast.Call) else None
    is_block = isinstance(call, ast.Call) and call.function.text in frame.library.blocks
    if (
        not isinstance(call, ast.Call)
        or call.result is None
        or builtin is None
        or is_block
        or (builtin.signature.name != "linear")
    ):
        e.sink.add(
            Diagnostic(
                "G209",
                "several result types need one `linear`",
                Label(statement.value.span, "no `linear(…) -> …`"),
                "a block's results are listed once, where the block is defined",
            )
        )
        return [FAILED] * len(names)
    types = [call.result, *statement.more_types]
    if len(types) != len(names):
        return [FAILED] * len(types)
    return builtin_calls.call_builtin(e, frame, call, builtin, list(names), types)


def _bind_target(
    e: Elaborator,
    frame: Frame,
    statement: ast.Assign,
    target: ast.Target,
    axes: tuple[str, ...] | None,
    value: Sem,
) -> None:
    name = target.name.text
    if axes is not None:
        value = fit(e.tables, frame, value, axes, target.span)
    old = frame.env.get(name)
    if isinstance(old, Value) and isinstance(value, Failed):
        return
    if isinstance(old, Value) and not isinstance(value, Value):
        e.sink.add(_changes_axes(name, old, value, statement))
        return
    if isinstance(old, Value) and isinstance(value, Value):
        same_type = old.type.dtype == value.type.dtype
        if not same_axes(old.type.axes, value.type.axes) or not same_type:
            if not e.tables.is_poisoned(value):
                e.sink.add(_changes_axes(name, old, value, statement))
            return
        value = permute(e.tables, frame, value, old.type.axes, statement.span)
    known = frame.library.sizes
    if name in known or name in frame.library.blocks or name in BUILTINS:
        what = "a size" if name in known else "a block" if name not in BUILTINS else "an operation"
        e.sink.add(
            Diagnostic(
                "G104",
                f"`{name}` is already {what}",
                Label(target.name.span, "a second meaning"),
                "use another name for the value",
            )
        )
    if isinstance(value, Value) and not value.name:
        value.name = name
    elif isinstance(value, Value) and value.name != name and not value.alias:
        value.alias = name
    frame.env[name] = value


def mark_stage(e: Elaborator, frame: Frame, statement: ast.Stage) -> None:
    if not frame.is_forward:
        e.sink.add(
            Diagnostic(
                "G401",
                "`stage` inside a block",
                Label(statement.span, f"block `{frame.name}` runs on one stage"),
                "cut in `forward`, or after every n-th layer: `stage every 8` in the `repeat`",
            )
        )
    elif statement.every is None:
        frame.statements.append(StageMark(statement.span))
    elif not frame.loop:
        e.sink.add(
            Diagnostic(
                "G406",
                "`stage every` outside a `repeat`",
                Label(statement.span, "nothing is repeated here"),
                "write `stage`, or move it into the `repeat`",
            )
        )


def _changes_axes(name: str, old: Value, new: Sem, statement: ast.Assign) -> Diagnostic:
    same = isinstance(new, Value) and same_axes(old.type.axes, new.type.axes)
    return Diagnostic(
        "G210",
        f"`{name}` changes its {'type' if same else 'axes'}",
        Label(statement.span, f"`{name}` was {old.type}, this is {describe(new)}"),
        f"a name keeps its {'type' if same else 'axes'}; use a new name for the new tensor",
    )
