"""Cuts that cannot be carried out, found once the number of stages is right."""

from __future__ import annotations

from collections.abc import Iterator

from giantdsl.diagnostics import Diagnostic, Label
from giantdsl.ir.nodes import Hold, Op, Program, Repeat, Value, all_statements
from giantdsl.ir.types import ROUTE, AxisKind, base_axis
from giantdsl.passes.cut_stages import StageProgram, cut_stages
from giantdsl.passes.stages import empty_stage, misplaced_mark, wanted_stages
from giantdsl.settings.values import ParallelSettings
from giantdsl.source import Span

_TAKEN = frozenset(
    {"clear", "copy", "fromkeys", "get", "items", "keys", "pop", "popitem", "setdefault"}
    | {"update", "values"}
)
"""What torch's dictionaries of modules and parameters call their own methods."""


def check_marks(program: Program, parallel: ParallelSettings) -> Iterator[Diagnostic]:
    """Marks where nothing can be cut, if marks count at all."""
    if parallel.stages is not None or wanted_stages(parallel) == 1:
        return
    mark = misplaced_mark(program)
    if mark is None:
        return
    what = "`stage every`" if isinstance(mark, Repeat) else "`stage`"
    yield Diagnostic(
        "G409",
        f"{what} inside an iteration",
        Label(mark.span, "an iteration of a loop in `forward` stays on one stage"),
        "put it at the end of the outermost `repeat`, or cut with `stages = [...]` in the plan",
    )


def check_empty(program: Program, parallel: ParallelSettings, place: Span) -> Iterator[Diagnostic]:
    """Counts of 0 in a place where nothing else is left for the stage."""
    counts = parallel.stages
    assert isinstance(counts, tuple)
    stage = empty_stage(program, [count if isinstance(count, int) else 0 for count in counts])
    if stage is not None:
        yield Diagnostic(
            "G408",
            f"stage {stage} would be empty",
            Label(place, "0 layers here"),
            "only the first stage and the last one can be without layers: what precedes the "
            "first layer is on the first, what follows the last one on the last",
        )


def check_crossings(program: Program, parallel: ParallelSettings) -> Iterator[Diagnostic]:
    """Values that cannot be sent, and weights that cannot be held. The cuts are known to be right."""
    stages = cut_stages(program, parallel)
    reported: set[str] = set()
    for stage in stages:
        for crossing in stage.receives:
            if crossing.name not in reported and not _can_be_sent(program, crossing.value):
                reported.add(crossing.name)
                yield _not_sent(crossing.value, stage.index)
        for hold in stage.program.forward.holds:
            if not _can_be_held(hold, stage.program.forward.holds):
                yield _not_held(hold, stage)


def _can_be_sent(program: Program, value: Value) -> bool:
    kinds = [program.axes[base_axis(axis)].kind for axis in value.type.axes]
    return value.type.dtype != ROUTE and AxisKind.RAGGED not in kinds


def _not_sent(value: Value, stage: int) -> Diagnostic:
    what = "a route" if value.type.dtype == ROUTE else "what a router sent"
    return Diagnostic(
        "G410",
        f"{what} cannot go from stage to stage",
        Label(value.span, f"made here, needed on stage {stage}"),
        "cut before `topk` or after `combine`",
    )


def _can_be_held(hold: Hold, others: tuple[Hold, ...]) -> bool:
    """Weights are held in dictionaries, one for each block on the way, of one kind each."""
    inner = [*hold.path, hold.weight.member][1:]
    is_mixed = hold.path and hold.weight.leaf == ""
    same = [o for o in others if o.path[: len(hold.path)] == hold.path and o.weight.leaf != ""]
    return not _TAKEN.intersection(inner) and not (is_mixed and same)


def _not_held(hold: Hold, stage: StageProgram) -> Diagnostic:
    name = ".".join([*hold.path, hold.weight.member])
    ties = (
        statement.span
        for statement in all_statements(stage.program.forward.statements)
        if isinstance(statement, Op) and any(u.weight is hold.weight for u in statement.weights)
    )
    return Diagnostic(
        "G411",
        f"stage {stage.index} cannot hold `{name}`, which it is tied to",
        Label(next(ties), "tied here"),
        "give the layer another name, or cut so that both are on one stage",
        (Label(hold.weight.span, f"`{name}` is on another stage"),),
    )
