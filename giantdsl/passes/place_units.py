"""Which stage each statement of `forward` belongs to (language.md 2.12).

What is placed are units: iterations of the loops in `forward`. What stands before the first loop
goes with stage 0, what stands after a loop with that loop's last iteration, and what ends the
model with the last stage.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from giantdsl.attrs import Config
from giantdsl.ir.flops import op_flops, token_choices
from giantdsl.ir.nodes import Call, Op, Program, Repeat, StageMark, Statement
from giantdsl.ir.parameters import extent
from giantdsl.passes.partition_stages import partition_stages
from giantdsl.passes.stages import count_stages, uses_marks
from giantdsl.settings.values import ParallelSettings


@dataclass(frozen=True, slots=True)
class Atom:
    """A statement of `forward`, or one iteration of a loop (`index` counts them)."""

    statement: Statement
    index: int | None = None


def atoms_of(program: Program) -> list[Atom]:
    """The statements of `forward` in order, loops as their iterations, marks left out."""
    found: list[Atom] = []
    for statement in program.forward.statements:
        if isinstance(statement, Repeat):
            found += [Atom(statement, i) for i in range(statement.count)]
        elif not isinstance(statement, StageMark):
            found.append(Atom(statement))
    return found


def place_units(program: Program, parallel: ParallelSettings) -> list[int]:
    """The stage of each atom, never falling, from 0 to the number of stages."""
    atoms = atoms_of(program)
    stages = count_stages(program, parallel)
    if stages == 1:
        return [0] * len(atoms)
    if isinstance(parallel.stages, tuple):
        counts = tuple(int(n) for n in parallel.stages if isinstance(n, int))
        return _by_counts(atoms, counts)
    if uses_marks(program, parallel):
        return _by_marks(program)
    weights = unit_costs(program, atoms, _measure(parallel))
    return _by_counts(atoms, partition_stages(weights, stages))


def _measure(parallel: ParallelSettings) -> str:
    by = parallel.stages.get("by") if isinstance(parallel.stages, Config) else None
    return str(by) if by is not None else "time"


def _by_counts(atoms: Sequence[Atom], counts: Sequence[int]) -> list[int]:
    """`counts[k]` units on stage k."""
    stage_of_unit = [stage for stage, count in enumerate(counts) for _ in range(count)]
    num_units, seen = len(stage_of_unit), 0
    placed: list[int] = []
    for atom in atoms:
        if atom.index is not None:
            placed.append(stage_of_unit[seen])
            seen += 1
        elif seen == 0:
            placed.append(0)
        else:
            placed.append(len(counts) - 1 if seen == num_units else stage_of_unit[seen - 1])
    return placed


def _by_marks(program: Program) -> list[int]:
    """A mark ends a stage; `every` ends one after each so-many-th iteration but the last."""
    placed: list[int] = []
    stage = 0
    for statement in program.forward.statements:
        if isinstance(statement, StageMark):
            stage += 1
        elif isinstance(statement, Repeat):
            for i in range(statement.count):
                body = statement.bodies[statement.pattern[i]].statements
                marks = sum(isinstance(s, StageMark) for s in body)
                before = bool(body) and isinstance(body[0], StageMark)
                stage += marks if before else 0
                placed.append(stage)
                stage += marks if not before else 0
                ends = statement.every and (i + 1) % statement.every == 0
                stage += 1 if ends and i + 1 < statement.count else 0
        else:
            placed.append(stage)
    return placed


def unit_costs(program: Program, atoms: Sequence[Atom], by: str) -> list[float]:
    """What each unit costs, with the statements that go with it: parameters, or FLOPs forward.

    `by`: "params", "flops" or "time"; time is taken to be FLOPs.
    """
    meter = _Meter(program, by)
    costs: list[float] = []
    glued = 0.0
    for atom in atoms:
        cost = meter.of_atom(atom)
        if atom.index is not None:
            costs.append(cost + glued)
            glued = 0.0
        elif costs:
            costs[-1] += cost
        else:
            glued += cost
    return costs


class _Meter:
    def __init__(self, program: Program, by: str) -> None:
        self._program, self._by = program, by
        self._choices = token_choices(program)
        self._functions: dict[int, float] = {}

    def of_atom(self, atom: Atom) -> float:
        statement = atom.statement
        if isinstance(statement, Repeat) and atom.index is not None:
            body = statement.bodies[statement.pattern[atom.index]]
            return sum(self._of(inner) for inner in body.statements)
        return self._of(statement)

    def _of(self, statement: Statement) -> float:
        if isinstance(statement, Op):
            if self._by == "params":
                owned = (use.weight for use in statement.weights if not use.tied)
                program = self._program
                return float(sum(math.prod(extent(program, a) for a in w.axes) for w in owned))
            return float(op_flops(self._program, statement, self._choices))
        if isinstance(statement, Call):
            key = id(statement.function)
            if key not in self._functions:
                self._functions[key] = sum(self._of(s) for s in statement.function.statements)
            return self._functions[key]
        if isinstance(statement, Repeat):
            each = [sum(self._of(s) for s in body.statements) for body in statement.bodies]
            return sum(each[variant] for variant in statement.pattern)
        return 0.0
