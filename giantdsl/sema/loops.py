"""`repeat`: read once if nothing depends on the index, else once for each iteration."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from giantdsl.diagnostics import Diagnostic, Label
from giantdsl.ir.nodes import Body, Repeat, Value
from giantdsl.ir.types import TensorType
from giantdsl.sema import finish, losses
from giantdsl.sema.scalars import FAILED, Failed
from giantdsl.sema.scope import Frame, describe
from giantdsl.sema.variants import distinct_bodies
from giantdsl.source import Span
from giantdsl.syntax import ast

if TYPE_CHECKING:
    from giantdsl.sema.elaborate import Elaborator

MAX_REPEAT = 100_000


def run_repeat(e: Elaborator, frame: Frame, statement: ast.Repeat) -> None:
    count = e.number(frame, statement.count)
    if count is None or not _count_is_legal(e, statement, count):
        return
    every = _every(e, frame, statement)
    _check_carried(e, frame, statement)
    carried = {
        name: init
        for name in _assigned_in(statement.body)
        if isinstance(init := frame.env.get(name), Value)
    }
    bodies = _bodies(e, frame, statement, list(carried), count)
    if not bodies:
        return
    kept, pattern = distinct_bodies(bodies)
    if not _uses_index(statement):
        pattern = (0,) * count
    _check_shared(e, statement, len(kept))
    draws = any(finish.draws_random(body.statements) for body in kept)
    results = {name: Value(name, init.type, statement.span) for name, init in carried.items()}
    terms = _loop_losses(kept, statement.span)
    node = Repeat(
        index=_index_name(statement),
        count=count,
        shared=statement.shared,
        bodies=kept,
        pattern=pattern,
        inits=tuple(carried.values()),
        results=tuple(results.values()),
        losses=terms,
        every=every,
        span=statement.span,
        site=frame.next_site() if draws else None,
    )
    frame.statements.append(node)
    e.tables.keep_alive += [*node.results, *(v for _, v in terms)]
    for (name, result), out in zip(results.items(), kept[0].yields, strict=True):
        frame.env[name] = result
        if id(out) in e.tables.row_means:
            e.tables.row_means[id(result)] = e.tables.row_means[id(out)]
    frame.losses += list(terms)


def _index_name(statement: ast.Repeat) -> str:
    return statement.index.text if statement.index is not None else ""


def _uses_index(statement: ast.Repeat) -> bool:
    name = _index_name(statement)
    return bool(name) and name in _names_in_body(statement.body)


def _bodies(
    e: Elaborator, frame: Frame, statement: ast.Repeat, carried: list[str], count: int
) -> list[Body]:
    """The body of each iteration, one where all are alike; [] where there is none to go on with."""
    first_site, first_fused = frame.num_sites, frame.num_fused
    frame.num_loops += 1
    loop = frame.num_loops
    bodies: list[Body] = []
    reads_again = e.reads_again
    for i in range(count if _uses_index(statement) else min(count, 1)):
        frame.num_sites, frame.num_fused = first_site, first_fused
        e.reads_again = reads_again or i > 0
        bodies.append(_iteration(e, frame, statement, carried, loop, i))
        if e.is_exhausted:
            return []
    e.reads_again = reads_again
    return bodies


def _check_shared(e: Elaborator, statement: ast.Repeat, num_bodies: int) -> None:
    if statement.shared and num_bodies > 1:
        e.sink.add(
            Diagnostic(
                "G215",
                "a shared `repeat` does the same each time",
                Label(statement.span, f"its body depends on `{_index_name(statement)}`"),
                "drop `shared`, or the use of the index",
            )
        )


def _check_carried(e: Elaborator, frame: Frame, statement: ast.Repeat) -> None:
    """Compile-time values cannot change from iteration to iteration: bodies are read once."""
    for target in _targets_in(statement.body):
        old = frame.env.get(target.name.text, FAILED)
        if not isinstance(old, Value | Failed):
            e.sink.add(
                Diagnostic(
                    "G233",
                    f"`{target.name.text}` cannot change inside a `repeat`",
                    Label(target.name.span, f"{describe(old)} before the loop"),
                    "a loop carries tensors only; compute it from the index, `repeat i in n`, "
                    "or use another name",
                )
            )


def _count_is_legal(e: Elaborator, statement: ast.Repeat, count: int) -> bool:
    if 0 <= count <= MAX_REPEAT:
        return True
    limit = (
        "a loop cannot run less than zero times"
        if count < 0
        else (f"a loop runs at most {MAX_REPEAT:,} times")
    )
    e.sink.add(Diagnostic("G215", f"`repeat` {count:,} times", Label(statement.count.span, limit)))
    return False


def _every(e: Elaborator, frame: Frame, statement: ast.Repeat) -> int:
    for inner in statement.body.statements:
        if isinstance(inner, ast.Stage) and inner.every is not None and frame.is_forward:
            every = e.number(frame, inner.every)
            if every is not None and every >= 1:
                return every
            if every is not None:
                e.sink.add(
                    Diagnostic(
                        "G406", "`stage every` counts from 1", Label(inner.span, f"this is {every}")
                    )
                )
    return 0


def _iteration(
    e: Elaborator, frame: Frame, statement: ast.Repeat, carried: list[str], loop: int, i: int
) -> Body:
    """Elaborate the body for one index; the frame is as before afterwards."""
    outer = frame.env, frame.statements, frame.losses, frame.loop, frame.indices
    inits = [outer[0][name] for name in carried]
    params = tuple(
        Value(name, init.type, statement.span)
        for name, init in zip(carried, inits, strict=True)
        if isinstance(init, Value)
    )
    for param, init in zip(params, inits, strict=True):
        if e.tables.is_poisoned(init):
            e.tables.poisoned.add(id(param))
        if id(init) in e.tables.row_means:
            e.tables.row_means[id(param)] = e.tables.row_means[id(init)]
    e.tables.keep_alive += params
    frame.env = {**outer[0], **dict(zip(carried, params, strict=True))}
    if statement.index is not None:
        frame.env[statement.index.text] = i
    frame.statements, frame.losses = [], []
    frame.loop = (*outer[3], loop)
    if not statement.shared:
        frame.indices = (*outer[4], i)
    e.run_body(frame, statement.body)
    yields = []
    for name, param in zip(carried, params, strict=True):
        value = frame.env.get(name)
        yields.append(value if isinstance(value, Value) else param)
    terms = tuple(losses.combined(e.tables, frame, frame.losses))
    body = Body(params, frame.statements, tuple(yields), terms)
    for name in frame.env.keys() - outer[0].keys():
        frame.gone.setdefault(name, statement.body.span)
    frame.env, frame.statements, frame.losses, frame.loop, frame.indices = outer
    return body


def _loop_losses(bodies: Sequence[Body], span: Span) -> tuple[tuple[str, Value], ...]:
    names: dict[str, None] = {}
    for body in bodies:
        names.update(dict.fromkeys(name for name, _ in body.losses))
    return tuple((name, Value(name, TensorType(()), span)) for name in names)


def _assigned_in(body: ast.Body) -> list[str]:
    """Names assigned anywhere in a body, in order of appearance."""
    return list(dict.fromkeys(target.name.text for target in _targets_in(body)))


def _targets_in(body: ast.Body) -> Iterator[ast.Target]:
    for statement in body.statements:
        if isinstance(statement, ast.Assign):
            yield from statement.targets
        elif isinstance(statement, ast.Repeat):
            yield from _targets_in(statement.body)
        elif isinstance(statement, ast.If):
            yield from _targets_in(statement.then)
            if statement.otherwise is not None:
                yield from _targets_in(statement.otherwise)


def _names_in_body(body: ast.Body) -> set[str]:
    """Every single-word path in a body: enough to tell whether an index is used."""
    found: set[str] = set()
    stack: list[object] = list(body.statements)
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Path):
            found.add(node.text)
        elif isinstance(node, tuple):
            stack.extend(node)
        elif isinstance(node, ast.Node) and not isinstance(node, ast.Name):
            stack.extend(getattr(node, f) for f in node.__dataclass_fields__ if f != "span")
    return found
