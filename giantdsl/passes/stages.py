"""How many stages a program is cut into."""

from __future__ import annotations

from giantdsl.ir.nodes import Program, Repeat, StageMark
from giantdsl.settings.values import ParallelSettings


def num_units(program: Program) -> int:
    """Iterations of the loops in `forward`: what counts in `stages` place."""
    return sum(s.count for s in program.forward.statements if isinstance(s, Repeat))


def marked_stages(program: Program) -> int:
    """Stages by the marks in `forward`; a mark after the very last statement cuts nothing off."""
    cuts = 0
    for statement in program.forward.statements:
        if isinstance(statement, StageMark):
            cuts += 1
        elif isinstance(statement, Repeat):
            inside = sum(isinstance(s, StageMark) for s in statement.bodies[0].statements)
            cuts += inside * statement.count
            if statement.every:
                cuts += (statement.count - 1) // statement.every
    return cuts + 1


def count_stages(program: Program, parallel: ParallelSettings | None) -> int:
    """Stages of the plan in force: the plan's own counts, else marks, else one a pipeline rank."""
    if parallel is None:
        return marked_stages(program)
    if isinstance(parallel.stages, tuple):
        return len(parallel.stages)
    marked = marked_stages(program)
    return marked if marked > 1 else max(1, parallel.pp)
