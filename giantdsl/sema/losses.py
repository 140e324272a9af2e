"""Loss terms and the counts their means divide by (invariant 1)."""

from __future__ import annotations

from collections.abc import Sequence

from giantdsl.diagnostics import Diagnostic, Label
from giantdsl.ir.nodes import Count, Function, Op, Value
from giantdsl.ir.types import TensorType
from giantdsl.sema.broadcast import mixed_counts
from giantdsl.sema.scope import Frame, Tables
from giantdsl.sema.signature import emit_op
from giantdsl.source import Span

_LABEL_OPS = ("slice", "pick", "rename", "permute")


def add_loss(tables: Tables, frame: Frame, name: str, value: Value, span: Span) -> None:
    """A `loss` line, or a loss that a block brought along."""
    note_count(tables, frame, name, tables.row_means.get(id(value)), span)
    frame.losses.append((name, value))


def note_count(tables: Tables, frame: Frame, name: str, count: Count | None, span: Span) -> None:
    known = frame.loss_counts.get(name)
    if known is None or known[0] is None:
        frame.loss_counts[name] = (count, span)
    elif count is not None and count != known[0]:
        tables.sink.add(mixed_counts(span, known[1]))


def combined(
    tables: Tables, frame: Frame, losses: Sequence[tuple[str, Value]]
) -> list[tuple[str, Value]]:
    """One value for each name, terms of the same name added up."""
    sums: dict[str, Value] = {}
    for name, value in losses:
        if name in sums:
            total = emit_op(
                tables, frame, "add", [sums[name], value], TensorType(()), {}, value.span
            )
            total.name = name
            sums[name] = total
        else:
            sums[name] = value
    return list(sums.items())


def count_seen_by_caller(
    function: Function, inputs: Sequence[Value | None], count: Count | None
) -> Count | None:
    """A callee's count in terms of the caller's values."""
    if count is None or count.kind == "rows":
        return count
    places = {id(param): value for param, value in zip(function.params, inputs, strict=True)}
    labels = places.get(id(count.labels))
    weight = places.get(id(count.weight)) if count.weight is not None else None
    return Count("valid", labels, count.ignore, weight)


def check_block_counts(tables: Tables, frame: Frame, params: Sequence[Value]) -> None:
    """The labels of a loss inside a block must be a parameter: the trainer counts them first."""
    known = {id(p) for p in params}
    for count, span in frame.loss_counts.values():
        if count is None or count.kind == "rows":
            continue
        for value in (count.labels, count.weight):
            if value is not None and id(value) not in known:
                tables.sink.add(_not_an_input(span, "a parameter of the block"))


def check_forward_counts(tables: Tables, frame: Frame, inputs: Sequence[Value]) -> None:
    known = {id(p) for p in inputs}
    outside_loops = {id(v) for s in frame.statements if isinstance(s, Op) for v in s.results}
    for count, span in frame.loss_counts.values():
        if count is None or count.kind == "rows":
            continue
        for value in (count.labels, count.weight):
            if value is None or id(value) in known:
                continue
            if not _from_inputs(tables, value, known):
                tables.sink.add(_not_an_input(span, "an input of `forward`, or a part of one"))
            elif id(value) not in outside_loops:
                tables.sink.add(_inside_loop(span))


def _inside_loop(span: Span) -> Diagnostic:
    return Diagnostic(
        "G227",
        "the labels of this loss are taken inside a `repeat`",
        Label(span, "counted before the loop runs"),
        "take the part of the labels before the `repeat`",
    )


def _from_inputs(tables: Tables, value: Value, inputs: set[int]) -> bool:
    while id(value) not in inputs:
        op = tables.producers.get(id(value))
        if op is None or op.kind not in _LABEL_OPS:
            return False
        value = op.inputs[0]
    return True


def _not_an_input(span: Span, wanted: str) -> Diagnostic:
    return Diagnostic(
        "G227",
        "the labels of this loss are computed on the way",
        Label(span, f"must be {wanted}"),
        "the number of valid labels of a whole batch is needed before its first microbatch runs",
    )
