"""What each stage computes, and what has to reach it (language.md 2.12).

1. Inputs are read by every stage that uses them.
2. Values that depend on weights only, or on inputs through operations without weights, are
   recomputed by each stage that needs them.
3. Everything else is computed once and sent, hop by hop, to the last stage that needs it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from giantdsl.errors import InternalError
from giantdsl.ir.nodes import (
    Call,
    Function,
    Op,
    Program,
    Repeat,
    Statement,
    Value,
    all_statements,
    results_of,
)
from giantdsl.passes.reads import reads_of
from giantdsl.passes.slice_loops import Placed, PlacedStatements, slice_loops
from giantdsl.passes.split_losses import SplitLosses, split_losses
from giantdsl.passes.stages import Placement


@dataclass(frozen=True, slots=True)
class Sent:
    """A value that crosses cuts: `stage` makes it, `last` is the last that needs it."""

    value: Value
    maker: Statement
    stage: int
    last: int


@dataclass(slots=True)
class StageContent:
    """The statements of a stage in order; what adds up its losses is not among them.

    `recomputed` are the values that other stages compute, too, and that more than their like
    reads here. `outputs` are results of the model. `reads`
    are the ids of the values that its statements, losses and outputs read.
    """

    statements: list[Statement] = field(default_factory=list)
    recomputed: list[tuple[Statement, Value]] = field(default_factory=list)
    outputs: list[Value] = field(default_factory=list)
    reads: set[int] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Crossings:
    """`sent` is in order of the stage and of the statement that makes a value."""

    stages: tuple[StageContent, ...]
    sent: tuple[Sent, ...]
    losses: SplitLosses


def find_crossings(program: Program, placement: Placement) -> Crossings:
    """Everything that stages compute and exchange, before they become programs."""
    placed = slice_loops(program, placement)
    return _Finder(program.forward, placed, placement.num_stages).run()


class _Finder:
    def __init__(self, forward: Function, placed: PlacedStatements, num_stages: int) -> None:
        self._forward, self._placed = forward, placed
        self._num_stages = num_stages
        self._inputs = {id(value) for value in forward.params}
        # By id of a value: its maker, the stage where it stands, and the same for loss sums.
        self._makers = {id(v): i.statement for i in placed.items for v in results_of(i.statement)}
        homes = {id(v): i.stage for i in placed.items for v in results_of(i.statement)}
        self._homes = dict.fromkeys(self._inputs, num_stages - 1) | homes
        self._again = _recomputable(forward, placed)

    def run(self) -> Crossings:
        losses = split_losses(self._forward, self._placed, self._homes)
        items = [i for i in self._placed.items if id(i.statement) not in losses.dropped]
        if any(id(v) in self._placed.partial for i in items for v in reads_of(i.statement)):
            raise InternalError("the loss of a loop on several stages is read as a value")
        outputs: list[list[Value]] = [[] for _ in range(self._num_stages)]
        for value in self._forward.results:
            outputs[self._homes[id(value)]].append(value)
        needed: list[set[int]] = []
        reads: list[set[int]] = []
        for stage in range(self._num_stages):
            fixed = {id(i.statement) for i in items if i.stage == stage} - self._again
            terms = [t.value for ts in losses.terms.get(stage, {}).values() for t in ts]
            found = self._closure(fixed, (*terms, *outputs[stage]))
            needed.append(found[0])
            reads.append(found[1])
        self._place_unused(items, needed, reads)
        contents = tuple(
            StageContent(
                statements=[i.statement for i in items if id(i.statement) in needed[stage]],
                outputs=outputs[stage],
                reads=reads[stage],
            )
            for stage in range(self._num_stages)
        )
        for content in contents:
            content.recomputed = self._recomputed(content, needed)
        return Crossings(contents, tuple(self._sent(contents)), losses)

    def _recomputed(
        self, content: StageContent, needed: Sequence[set[int]]
    ) -> list[tuple[Statement, Value]]:
        read = {
            id(value)
            for statement in content.statements
            if id(statement) not in self._again
            for value in reads_of(statement)
        }
        return [
            (statement, value)
            for statement in content.statements
            if id(statement) in self._again and sum(id(statement) in n for n in needed) > 1
            for value in results_of(statement)
            if id(value) in read
        ]

    def _closure(self, fixed: set[int], wanted: Iterable[Value]) -> tuple[set[int], set[int]]:
        """ids of the statements of a stage, and of all that it reads."""
        statements = {id(i.statement): i.statement for i in self._placed.items}
        needed = set(fixed)
        stack = [*wanted, *(v for key in fixed for v in reads_of(statements[key]))]
        reads: set[int] = set()
        while stack:
            value = stack.pop()
            reads.add(id(value))
            maker = self._makers.get(id(value))
            if maker is not None and id(maker) in self._again and id(maker) not in needed:
                needed.add(id(maker))
                stack += reads_of(maker)
        return needed, reads

    def _place_unused(
        self, items: Sequence[Placed], needed: list[set[int]], reads: list[set[int]]
    ) -> None:
        """What nobody needs stays where it stands: its weights are parameters all the same."""
        for item in reversed(items):
            key = id(item.statement)
            if key in self._again and not any(key in found for found in needed):
                more, read = self._closure({key}, ())
                needed[item.stage] |= more
                reads[item.stage] |= read

    def _sent(self, contents: Sequence[StageContent]) -> list[Sent]:
        found: list[Sent] = []
        for item in self._placed.items:
            if id(item.statement) in self._again:
                continue
            for value in results_of(item.statement):
                readers = [s for s, content in enumerate(contents) if id(value) in content.reads]
                if readers and readers[-1] > item.stage:
                    found.append(Sent(value, item.statement, item.stage, readers[-1]))
        return sorted(found, key=lambda sent: sent.stage)


def _recomputable(forward: Function, placed: PlacedStatements) -> set[int]:
    """ids of the statements whose results depend on weights only, or on no weight at all.

    Never a loop: its iterations are what stages are made of. Never what makes a loss.
    """
    from_input = {id(value) for value in forward.params} | placed.partial.keys()
    from_weight = set(placed.partial)
    found: set[int] = set()
    for item in placed.items:
        statement = item.statement
        reads = [id(value) for value in reads_of(statement)]
        has_input = any(key in from_input for key in reads)
        has_weight = has_weights(statement) or any(key in from_weight for key in reads)
        is_fixed = isinstance(statement, Repeat) or (
            isinstance(statement, Call) and bool(statement.losses)
        )
        made = {id(value) for value in results_of(statement)}
        if is_fixed or has_input:
            from_input |= made
        if is_fixed or has_weight:
            from_weight |= made
        if not is_fixed and not (has_input and has_weight):
            found.add(id(statement))
    return found


def has_weights(statement: Statement) -> bool:
    """Whether a statement uses weights, its own or tied ones."""
    for inner in all_statements([statement]):
        if isinstance(inner, Op) and inner.weights:
            return True
        if isinstance(inner, Call) and any(map(has_weights, inner.function.statements)):
            return True
    return False
