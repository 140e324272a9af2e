"""The terms of the losses, each on the stage that makes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from giantdsl.ir.nodes import Function, Op, Statement, Value
from giantdsl.passes.reads import reads_of


class HasStatements(Protocol):
    """A stage in the making."""

    own: list[Statement]


def losses_by_stage(
    forward: Function,
    totals: Mapping[int, Sequence[tuple[Value, int]]],
    home: dict[int, int],
    maker: Mapping[int, Statement],
    stages: Sequence[HasStatements],
) -> list[list[tuple[str, Value]]]:
    """For each stage its losses: sums are taken apart, so that no term has to travel.

    `totals`: by id of a loop's loss, its parts with their stages. Sums that nothing but a loss
    reads leave the statements; where a sum is read otherwise, its parts are added up on the last
    stage that has one.
    """
    counts = _uses(forward)
    found: list[list[tuple[str, Value]]] = [[] for _ in stages]
    gone: set[int] = set()
    for name, value in forward.losses:
        by_stage: dict[int, list[Value]] = {}
        for term, stage in _terms(value, totals, home, maker, counts, gone):
            by_stage.setdefault(stage, []).append(term)
        for stage, terms in by_stage.items():
            found[stage].append((name, _sum(name, terms, stages[stage])))
    for stage in stages:
        stage.own[:] = [s for s in stage.own if id(s) not in gone]
    _settle(totals, home, stages)
    return found


def _terms(
    value: Value,
    totals: Mapping[int, Sequence[tuple[Value, int]]],
    home: Mapping[int, int],
    maker: Mapping[int, Statement],
    counts: Mapping[int, int],
    gone: set[int],
) -> list[tuple[Value, int]]:
    op = maker.get(id(value))
    if counts.get(id(value), 0) <= 1:
        if id(value) in totals:
            return list(totals[id(value)])
        if isinstance(op, Op) and op.kind == "add":
            gone.add(id(op))
            parts = (_terms(v, totals, home, maker, counts, gone) for v in op.inputs)
            return [term for part in parts for term in part]
    return [(value, home[id(value)])]


def _uses(forward: Function) -> dict[int, int]:
    """How often each value is read, losses included."""
    counts: dict[int, int] = {}
    for statement in forward.statements:
        for value in reads_of(statement):
            counts[id(value)] = counts.get(id(value), 0) + 1
    for value in (*forward.results, *(v for _, v in forward.losses)):
        counts[id(value)] = counts.get(id(value), 0) + 1
    return counts


def _sum(name: str, terms: Sequence[Value], stage: HasStatements) -> Value:
    total, *others = terms
    for term in others:
        made = Value(name, term.type, term.span)
        stage.own.append(Op("add", (total, term), (made,), {}, (), "", term.span))
        total = made
    return total


def _settle(
    totals: Mapping[int, Sequence[tuple[Value, int]]],
    home: dict[int, int],
    stages: Sequence[HasStatements],
) -> None:
    """A loop's loss that something else reads is put together after the loop."""
    read = {id(v): v for stage in stages for s in stage.own for v in reads_of(s)}
    for key, parts in totals.items():
        if key not in read or len(parts) == 1:
            continue
        stage = parts[-1][1]
        at = 1 + max(
            i for i, s in enumerate(stages[stage].own) if parts[-1][0] in _made(s)
        )
        total = parts[0][0]
        for i, (part, _) in enumerate(parts[1:], 1):
            last = i == len(parts) - 1
            made = read[key] if last else Value("", part.type, part.span)
            op = Op("add", (total, part), (made,), {}, (), "", part.span)
            stages[stage].own.insert(at, op)
            at += 1
            total = made
        home[key] = stage


def _made(statement: Statement) -> tuple[Value, ...]:
    from giantdsl.passes.reads import results_of

    return results_of(statement)


