"""Losses as terms on the stages that compute them.

A loss is one number; where it is a sum (`loss balance` in every layer, terms of one name in
several blocks, `lm + 0.1 * aux`), its terms stay on their stages under the same name, and
whoever adds up the losses of all stages has the whole. Nothing then has to be sent for it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from giantdsl.ir.nodes import Function, Op, Statement, Value
from giantdsl.ir.types import TensorType
from giantdsl.passes.reads import reads_of
from giantdsl.passes.slice_loops import PlacedStatements

_LINEAR = ("add", "sub", "scale")


@dataclass(frozen=True, slots=True)
class Term:
    """`factor * value`."""

    factor: float
    value: Value


@dataclass(slots=True)
class SplitLosses:
    """`terms[stage][name]` add up to that stage's part of a loss.

    `dropped` are the ids of operations that only added up what is now apart.
    """

    terms: dict[int, dict[str, list[Term]]] = field(default_factory=dict)
    dropped: set[int] = field(default_factory=set)


def split_losses(
    forward: Function, placed: PlacedStatements, homes: Mapping[int, int]
) -> SplitLosses:
    """`homes`: the stage of each value by id."""
    makers = {id(v): i.statement for i in placed.items for v in _scalars(i.statement)}
    found = SplitLosses()
    split: set[int] = set()
    for name, value in forward.losses:
        terms = list(_terms(Term(1.0, value), makers, placed.partial))
        stages = {homes[id(term.value)] for term in terms}
        is_apart = len(stages) > 1 or id(value) not in homes or stages != {homes[id(value)]}
        if is_apart:
            split.add(id(value))
        for term in terms if is_apart else [Term(1.0, value)]:
            of_stage = found.terms.setdefault(homes[id(term.value)], {})
            of_stage.setdefault(name, []).append(term)
    found.dropped = _only_sums(forward, placed, split)
    return found


def _scalars(statement: Statement) -> tuple[Value, ...]:
    """The results of an operation on numbers."""
    if not isinstance(statement, Op) or statement.kind not in _LINEAR:
        return ()
    values = (*statement.inputs, *statement.results)
    return statement.results if all(not v.type.axes for v in values) else ()


def _terms(
    term: Term, makers: Mapping[int, Statement], partial: Mapping[int, tuple[Value, ...]]
) -> Iterable[Term]:
    key = id(term.value)
    if key in partial:
        for part in partial[key]:
            yield Term(term.factor, part)
        return
    op = makers.get(key)
    if not isinstance(op, Op):
        yield term
        return
    for position, value in enumerate(op.inputs):
        factor = term.factor
        if op.kind == "scale":
            by = op.attrs["by"]
            assert isinstance(by, int | float)
            factor *= by
        elif op.kind == "sub" and position == 1:
            factor = -factor
        yield from _terms(Term(factor, value), makers, partial)


def _only_sums(forward: Function, placed: PlacedStatements, split: set[int]) -> set[int]:
    """Operations whose results nothing reads but losses that are apart, and each other."""
    readers: dict[int, list[int]] = defaultdict(list)
    for item in placed.items:
        for value in reads_of(item.statement):
            readers[id(value)].append(id(item.statement))
    kept = {id(value) for value in forward.results}
    kept |= {id(value) for _, value in forward.losses} - split
    wanted = set(split)
    dropped: set[int] = set()
    for item in reversed(placed.items):
        made = _scalars(item.statement)
        if any(id(v) in wanted for v in made) and not any(
            id(v) in kept or any(reader not in dropped for reader in readers[id(v)]) for v in made
        ):
            dropped.add(id(item.statement))
            wanted.update(id(v) for v in reads_of(item.statement))
    return dropped


def sum_of(name: str, terms: list[Term]) -> tuple[list[Op], Value]:
    """The operations that add up terms, and their result."""
    ops: list[Op] = []

    def make(kind: str, inputs: tuple[Value, ...], **attrs: float) -> Value:
        made = Value(name, TensorType(()), inputs[-1].span)
        ops.append(Op(kind, inputs, (made,), dict(attrs), (), "", made.span))
        return made

    total: Value | None = None
    for term in terms:
        value = term.value if term.factor == 1 else make("scale", (term.value,), by=term.factor)
        total = value if total is None else make("add", (total, value))
    assert total is not None, "a loss without terms"
    return ops, total
