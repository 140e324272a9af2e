"""A plan for people to read: stages, layouts, schedule. No torch."""

from __future__ import annotations

import math

from giantdsl.driver import Compiled
from giantdsl.errors import SettingsError
from giantdsl.passes.layout_text import layout_lines
from giantdsl.passes.stage_table import stage_table
from giantdsl.planning import Sliced, mesh_sizes, num_ranks, parallel_settings, slice_program
from giantdsl.schedule.build import build_schedule
from giantdsl.schedule.draw import draw_schedule
from giantdsl.schedule.instructions import Schedule


def plan_text(compiled: Compiled, stage: int | None = None) -> str:
    """The mesh, the table of stages, and every operation with its layout and conversions."""
    sliced = slice_program(compiled)
    if stage is not None and not 0 <= stage < len(sliced.stages):
        raise SettingsError(f"there is no stage {stage}: the plan has {len(sliced.stages)}, from 0")
    parallel = parallel_settings(compiled)
    mesh = " x ".join(f"{axis} {size}" for axis, size in mesh_sizes(parallel) if size > 1)
    lines = [f"{compiled.program.model} on {num_ranks(parallel)} ranks: {mesh or 'one process'}"]
    lines += [f"divided: {_divided(sliced)}"] if sliced.splits else []
    lines += ["", stage_table(sliced.stages), ""]
    chosen = range(len(sliced.stages)) if stage is None else (stage,)
    for index in chosen:
        lines += [f"== stage {index}: {sliced.stages[index].units}"]
        lines += layout_lines(sliced.converted[index], sliced.rules, sliced.weights)
    return "\n".join(lines)


def _divided(sliced: Sliced) -> str:
    return ", ".join(
        f"{s.axis} over {' and '.join(s.mesh)}{' in zigzag' if s.zigzag else ''}"
        for s in sliced.splits.values()
    )


def schedule_text(compiled: Compiled, rank: int | None = None) -> str:
    """The schedule of one step as a drawing, or one rank's instructions in order."""
    schedule = step_schedule(compiled)
    if rank is None:
        return draw_schedule(schedule)
    if not 0 <= rank < schedule.num_ranks:
        raise SettingsError(
            f"there is no pipeline rank {rank}: the plan has {schedule.num_ranks}, from 0"
        )
    return "\n".join(str(instruction) for instruction in schedule.ranks[rank])


def step_schedule(compiled: Compiled) -> Schedule:
    """What the pipeline ranks do in a step; eight microbatches where there is no `train`."""
    parallel, train = parallel_settings(compiled), compiled.settings.train
    stages = len(slice_program(compiled).stages)
    count = 8
    if train is not None:
        rows = math.ceil(train.batch / max(1, parallel.dp * parallel.ep))
        count = math.ceil(rows / (train.microbatch or rows))
    return build_schedule(parallel.schedule.name, max(1, parallel.pp), stages, count)
