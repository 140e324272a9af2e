"""Which stage every statement of `forward` is on: by marks, by counts, or balanced."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from giantdsl.attrs import Config
from giantdsl.ir.nodes import Program, Repeat, StageMark, Statement
from giantdsl.passes.partition_stages import partition_stages
from giantdsl.passes.unit_costs import unit_costs
from giantdsl.settings.values import ParallelSettings


@dataclass(frozen=True, slots=True)
class Placement:
    """`stages[i]`: the stage of statement i of `forward`, or of each iteration of a loop.

    In order of the program they never fall.
    """

    stages: tuple[tuple[int, ...], ...]
    num_stages: int


def place_statements(program: Program, parallel: ParallelSettings) -> Placement:
    """The plan's own counts, else the marks, else stages that are balanced."""
    if isinstance(parallel.stages, tuple):
        return _by_counts(program, [int(str(count)) for count in parallel.stages])
    if uses_marks(program, parallel):
        return _by_marks(program)
    wanted = wanted_stages(parallel)
    if wanted == 1:
        return _by_counts(program, [num_units(program)])
    assert wanted <= num_units(program), "G405 is found before"
    costs = unit_costs(program, _balanced_by(parallel))
    return _by_counts(program, partition_stages(costs, wanted))


def wanted_stages(parallel: ParallelSettings) -> int:
    """Stages where neither counts nor marks say it: `chunks` of the schedule a pipeline rank."""
    chunks = dict(parallel.schedule.kwargs).get("chunks", 1)
    return max(1, parallel.pp) * (chunks if isinstance(chunks, int) else 1)


def _balanced_by(parallel: ParallelSettings) -> str:
    if isinstance(parallel.stages, Config):
        by = dict(parallel.stages.kwargs).get("by", "time")
        return by.name if isinstance(by, Config) else str(by)
    return "time"


def count_stages(program: Program, parallel: ParallelSettings | None) -> int:
    """How many stages `place_statements` makes; also where the plan turns out not to work.

    On one pipeline rank there is nothing to cut unless the plan says so: marks then cut nothing.
    """
    if parallel is None:
        return 1
    if isinstance(parallel.stages, tuple):
        return len(parallel.stages)
    return marked_stages(program) if uses_marks(program, parallel) else wanted_stages(parallel)


def uses_marks(program: Program, parallel: ParallelSettings) -> bool:
    """Whether the marks in `forward` decide: the plan is silent, and there is something to cut."""
    is_cut = parallel.stages is None and wanted_stages(parallel) > 1
    return is_cut and marked_stages(program) > 1


def num_units(program: Program) -> int:
    """Iterations of the loops in `forward`: what counts in `stages` place."""
    return sum(s.count for s in program.forward.statements if isinstance(s, Repeat))


def marked_stages(program: Program) -> int:
    """Stages by the marks in `forward`; marks with nothing between them cut once."""
    return _by_marks(program).num_stages


def misplaced_mark(program: Program) -> StageMark | Repeat | None:
    """A mark inside an iteration: what is in it stays together."""
    for loop in program.forward.statements:
        for body in loop.bodies if isinstance(loop, Repeat) else ():
            for statement in body.statements[1:-1]:
                if isinstance(statement, StageMark):
                    return statement
            inner = next(_marks_inside(body.statements), None)
            if inner is not None:
                return inner
    return None


def _marks_inside(statements: Sequence[Statement]) -> Iterator[StageMark | Repeat]:
    """Those in loops among the statements."""
    for statement in statements:
        if not isinstance(statement, Repeat):
            continue
        if statement.every:
            yield statement
        for body in statement.bodies:
            yield from (s for s in body.statements if isinstance(s, StageMark))
            yield from _marks_inside(body.statements)


def empty_stage(program: Program, counts: Sequence[int]) -> int | None:
    """A stage of no iterations that has neither what precedes the first nor what follows the last."""
    statements = [s for s in program.forward.statements if not isinstance(s, StageMark)]
    ends = (statements[0], statements[-1]) if statements else (None, None)
    for stage, count in enumerate(counts):
        is_first = stage == 0 and not isinstance(ends[0], Repeat)
        is_last = stage == len(counts) - 1 and not isinstance(ends[1], Repeat)
        if count == 0 and not is_first and not is_last:
            return stage
    return None


def _by_counts(program: Program, counts: Sequence[int]) -> Placement:
    """A statement before the first loop is on the first stage, one behind the last on the last.

    One between two loops is where the last iteration before it is.
    """
    unit_stages = [stage for stage, count in enumerate(counts) for _ in range(count)]
    statements = program.forward.statements
    loops = [at for at, statement in enumerate(statements) if isinstance(statement, Repeat)]
    stages: list[tuple[int, ...]] = []
    stage = unit = 0
    for at, statement in enumerate(statements):
        if isinstance(statement, Repeat):
            stages.append(tuple(unit_stages[unit : unit + statement.count]))
            unit += statement.count
            stage = stages[-1][-1]
        elif loops and at > loops[-1]:
            stages.append((len(counts) - 1,))
        else:
            stages.append((stage,))
    return Placement(tuple(stages), len(counts))


def _by_marks(program: Program) -> Placement:
    walk = _MarkWalk()
    stages: list[tuple[int, ...]] = []
    for statement in program.forward.statements:
        if isinstance(statement, StageMark):
            walk.mark()
            stages.append((walk.stage,))
        elif isinstance(statement, Repeat):
            stages.append(tuple(walk.loop(statement)))
        else:
            stages.append((walk.place(),))
    return Placement(tuple(stages), walk.stage + 1)


class _MarkWalk:
    """The stage we are on: a mark cuts once something comes after it, if something came before."""

    def __init__(self) -> None:
        self.stage = 0
        self._is_filled = self._is_marked = False

    def mark(self) -> None:
        self._is_marked = True

    def place(self) -> int:
        if self._is_marked and self._is_filled:
            self.stage += 1
        self._is_marked = False
        self._is_filled = True
        return self.stage

    def loop(self, loop: Repeat) -> Iterator[int]:
        for i, variant in enumerate(loop.pattern):
            statements = loop.bodies[variant].statements
            if statements and isinstance(statements[0], StageMark):
                self.mark()
            yield self.place()
            is_between = bool(loop.every) and (i + 1) % loop.every == 0 and i + 1 < loop.count
            if is_between or (statements and isinstance(statements[-1], StageMark)):
                self.mark()
