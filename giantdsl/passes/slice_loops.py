"""Loops of `forward` cut into what each stage runs of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby

from giantdsl.ir.nodes import Program, Repeat, StageMark, Statement, Value
from giantdsl.passes.stages import Placement


@dataclass(frozen=True, slots=True)
class Placed:
    """A statement of `forward`, or what one stage runs of a loop."""

    statement: Statement
    stage: int


@dataclass(frozen=True, slots=True)
class PlacedStatements:
    """`forward` in order, without its marks.

    `partial` are, by id of a loop's loss, its sums on the stages that have some of it.
    """

    items: tuple[Placed, ...]
    partial: dict[int, tuple[Value, ...]]


def slice_loops(program: Program, placement: Placement) -> PlacedStatements:
    """Every statement with its stage; a loop on several stages becomes several loops."""
    items: list[Placed] = []
    partial: dict[int, tuple[Value, ...]] = {}
    for statement, stages in zip(program.forward.statements, placement.stages, strict=True):
        if isinstance(statement, StageMark):
            continue
        if not isinstance(statement, Repeat) or len(set(stages)) == 1:
            items.append(Placed(statement, stages[0]))
            continue
        parts = list(_parts(statement, stages))
        items += parts
        for name, total in statement.losses:
            losses = [dict(p.statement.losses) for p in parts if isinstance(p.statement, Repeat)]
            partial[id(total)] = tuple(found[name] for found in losses if name in found)
    return PlacedStatements(tuple(items), partial)


def _parts(loop: Repeat, stages: tuple[int, ...]) -> Iterator[Placed]:
    """The runs of iterations on one stage each: what one carries out, the next carries in."""
    start, inits = 0, loop.inits
    for stage, same in groupby(stages):
        count = len(list(same))
        is_last = start + count == loop.count
        results = loop.results if is_last else tuple(_like(value) for value in loop.results)
        yield Placed(_part(loop, start, count, inits, results), stage)
        start, inits = start + count, results


def _part(
    loop: Repeat, start: int, count: int, inits: tuple[Value, ...], results: tuple[Value, ...]
) -> Repeat:
    pattern = loop.pattern[start : start + count]
    used = sorted(set(pattern))
    bodies = tuple(loop.bodies[variant] for variant in used)
    names = dict.fromkeys(name for body in bodies for name, _ in body.losses)
    totals = dict(loop.losses)
    return replace(
        loop,
        first=loop.first + start,
        count=count,
        bodies=bodies,
        pattern=tuple(used.index(variant) for variant in pattern),
        inits=inits,
        results=results,
        losses=tuple((name, _like(totals[name])) for name in names),
        every=0,
    )


def _like(value: Value) -> Value:
    return Value(value.name, value.type, value.span)
