"""Blocks: called, instantiated once for each way they are used, finished as functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from giantdsl.attrs import Attr
from giantdsl.diagnostics import Diagnostic, Label
from giantdsl.ir.nodes import Call, Count, Function, Repeat, Value
from giantdsl.ir.types import TensorType
from giantdsl.sema import binding, finish, losses
from giantdsl.sema.axes import resolve_axes, resolve_dtype
from giantdsl.sema.fit import fit, fit_call
from giantdsl.sema.layers import register_layer
from giantdsl.sema.scalars import FAILED
from giantdsl.sema.scope import BlockRef, Frame, Sem, plural
from giantdsl.source import Span
from giantdsl.syntax import ast

if TYPE_CHECKING:
    from giantdsl.sema.elaborate import Elaborator

MAX_DEPTH = 64


def call_block(e: Elaborator, frame: Frame, call: ast.Call, ref: BlockRef) -> Sem:
    block = ref.block
    e.seen_blocks.add(id(block))
    member = call.layer.text if call.layer is not None else block.name.text
    bound = binding.bind_block(e, frame, call, block)
    if bound is None:
        frame.failed_layers.add(member)
        return e.declared(frame, call)
    function = instantiate(e, frame, ref, bound, member, call.span)
    if function is None:
        return e.declared(frame, call)
    results = tuple(
        Value("", TensorType(r.type.axes, r.type.dtype, r.type.at), call.span)
        for r in function.results
    )
    terms = tuple(Value(name, TensorType(()), call.span) for name, _ in function.losses)
    site = frame.next_site() if function.draws else None
    statement = Call(function, tuple(bound.tensors), results, terms, member, call.span, site)
    frame.statements.append(statement)
    frame.callees[member] = (frame.loop, statement)
    if function.weights or _has_members(function):
        register_layer(e.tables, frame, member, call.span)
    _take_losses(e, frame, statement)
    follows = bound.takes_axes and any(e.tables.is_poisoned(v) for v in bound.tensors)
    for value, inner in zip(results, function.results, strict=True):
        if follows or e.tables.is_poisoned(inner):
            e.tables.poisoned.add(id(value))
    e.tables.keep_alive += [*results, *terms]
    if len(results) > 1:
        return results
    return fit_call(e.tables, frame, results[0], call)


def _take_losses(e: Elaborator, frame: Frame, call: Call) -> None:
    means = e.row_means.get(id(call.function), {})
    for key, inner in means.items():
        where = call.results[key] if key >= 0 else call.losses[-key - 1]
        count = losses.count_seen_by_caller(call.function, call.inputs, inner)
        e.tables.row_means[id(where)] = count
    for (name, _), value in zip(call.function.losses, call.losses, strict=True):
        losses.add_loss(e.tables, frame, name, value, call.span)


def instantiate(
    e: Elaborator, frame: Frame, ref: BlockRef, bound: binding.Bound, member: str, span: Span
) -> Function | None:
    """The function of a block under one binding; the same binding gives the same function."""
    block = ref.block
    key = (id(block), bound.key())
    if key in e.functions:
        return e.functions[key]
    fault = _nesting_fault(e, block, span)
    if fault is not None:
        e.sink.add(fault)
        return None
    if e.is_exhausted:
        return None
    e.open_blocks.append(block)
    reads_again = e.reads_again
    e.reads_again = reads_again or id(block) in e.read_blocks
    e.read_blocks.add(id(block))
    place = ".".join([member, *(str(i) for i in frame.indices)])
    inner = Frame(
        name=block.name.text,
        library=ref.library,
        generics=dict(bound.generics),
        rest=bound.rest,
        per=bound.per,
        env=dict(bound.env),
        path=f"{frame.path}.{place}" if frame.path else place,
        depth=frame.depth + 1,
    )
    params = tuple(v for v in bound.env.values() if isinstance(v, Value))
    returned = e.run_body(inner, block.body)
    e.reads_again = reads_again
    results = declared_results(
        e, inner, block.results, returned, block, f"block `{block.name.text}`"
    )
    losses.check_block_counts(e.tables, inner, params)
    e.open_blocks.pop()
    function = finish_function(e, inner, params, results, bound.statics(), block.span)
    e.functions[key] = function
    return function


def _nesting_fault(e: Elaborator, block: ast.Block, span: Span) -> Diagnostic | None:
    if any(block is other for other in e.open_blocks):
        return Diagnostic(
            "G229",
            f"block `{block.name.text}` uses itself",
            Label(span, "used here, inside itself"),
            "blocks cannot be recursive; use `repeat`",
        )
    if len(e.open_blocks) >= MAX_DEPTH:
        return Diagnostic(
            "G229",
            f"blocks are used in blocks more than {MAX_DEPTH} deep",
            Label(span, "one too many"),
            "write what the innermost blocks do into the blocks that use them",
        )
    return None


def declared_results(
    e: Elaborator,
    frame: Frame,
    declared: Sequence[ast.ValueType],
    returned: Sequence[tuple[Sem, Span]] | None,
    node: ast.Block | ast.Forward,
    what: str,
) -> list[Value]:
    """The returned values in their declared types."""
    if returned is None and e.is_exhausted:
        returned = [(FAILED, node.span) for _ in declared]
    elif returned is None:
        end = Span(node.span.source, max(node.span.end - 1, node.span.start), node.span.end)
        e.sink.add(
            Diagnostic(
                "G211",
                f"{what} ends without a `return`",
                Label(end, "nothing is returned"),
                "name the result: `return x`",
            )
        )
        returned = [(FAILED, end) for _ in declared]
    elif len(returned) != len(declared):
        span = returned[0][1].to(returned[-1][1])
        e.sink.add(
            Diagnostic(
                "G209",
                f"{what} returns {plural(len(returned), 'value')}, {len(declared)} declared",
                Label(span, f"{len(returned)} here"),
                "after `->` stands one type for each value that is returned",
            )
        )
        returned = [(FAILED, span) for _ in declared]
    found: list[Value] = []
    for (value, span), type in zip(returned, declared, strict=True):
        axes = resolve_axes(e.tables, frame, type.axes)
        dtype = resolve_dtype(e.tables, frame, type.dtype)
        fitted: Sem = FAILED
        if axes is not None and dtype is not None:
            fitted = fit(e.tables, frame, value, axes[0], span, dtype)
        if not isinstance(fitted, Value):
            fitted = Value("", TensorType(axes[0] if axes else (), dtype or "float"), span)
            e.tables.poisoned.add(id(fitted))
            e.tables.keep_alive.append(fitted)
        found.append(fitted)
    return found


def finish_function(
    e: Elaborator,
    frame: Frame,
    params: tuple[Value, ...],
    results: Sequence[Value],
    static: dict[str, Attr],
    span: Span,
) -> Function:
    terms = losses.combined(e.tables, frame, frame.losses)
    statements = frame.statements
    function = Function(
        name=frame.name,
        symbol="",
        params=params,
        optional=frozenset(),
        loss_only=finish.loss_only_params(params, statements, results, [v for _, v in terms]),
        results=tuple(results),
        losses=tuple(terms),
        statements=statements,
        weights=finish.own_weights(statements),
        static=static,
        generics=dict(frame.generics),
        per=frame.per,
        draws=finish.draws_random(statements),
        span=span,
    )
    means: dict[int, Count | None] = {}
    for i, value in enumerate(results):
        if id(value) in e.tables.row_means:
            means[i] = e.tables.row_means[id(value)]
    for i, (name, _) in enumerate(terms):
        means[-i - 1] = frame.loss_counts[name][0]
    e.row_means[id(function)] = means
    return function


def _has_members(function: Function) -> bool:
    return any(isinstance(s, Call | Repeat) for s in function.statements)
