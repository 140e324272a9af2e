"""From a compiled spec to the plan of several processes: cut, convert, emit, describe. No torch."""

from __future__ import annotations

import math
from dataclasses import dataclass

from giantdsl.driver import Compiled, make_plan
from giantdsl.emit.held import LATER, Held
from giantdsl.emit.stage import emit_stage
from giantdsl.ir.nodes import Program
from giantdsl.ir.parameters import iter_parameters
from giantdsl.passes.cut_stages import StageProgram, cut_stages
from giantdsl.passes.describe import block_values, stored_parameters, value_info
from giantdsl.passes.insert_collectives import insert_collectives
from giantdsl.passes.layout import Rules, rules_of
from giantdsl.passes.rings import with_rings, zigzag_axes
from giantdsl.passes.splits import axis_splits
from giantdsl.passes.storage import Key, WeightLayout, owners_of, weight_layouts
from giantdsl.plan import AxisSplit, ParallelPlan, StageInfo, ValueInfo
from giantdsl.settings.values import ParallelSettings


@dataclass(frozen=True, slots=True)
class Sliced:
    """A program cut into stages with every conversion written out, before it becomes text.

    `weights` are the layouts of the whole model's weights, `splits` the divided axes.
    """

    rules: Rules
    weights: dict[Key, WeightLayout]
    splits: dict[str, AxisSplit]
    stages: tuple[StageProgram, ...]
    converted: tuple[Program, ...]


def mesh_sizes(parallel: ParallelSettings) -> tuple[tuple[str, int], ...]:
    """(axis, size) pairs, outermost first; `auto` (0) is one."""
    return tuple((axis, max(1, int(getattr(parallel, axis)))) for axis in parallel.order)


def parallel_settings(compiled: Compiled) -> ParallelSettings:
    return compiled.settings.parallel or ParallelSettings()


def slice_program(compiled: Compiled) -> Sliced:
    """The passes, in order. The spec was found right, so nothing here can fail."""
    program, parallel = compiled.program, parallel_settings(compiled)
    rules = rules_of(program, parallel)
    weights = weight_layouts(program, rules)
    stages = cut_stages(program, parallel)
    converted = tuple(
        insert_collectives(
            stage.program,
            rules,
            weights,
            received=[crossing.value for crossing in stage.receives],
            with_gradient=[c.value for c in stage.receives if c.grad],
        )
        for stage in stages
    )
    if parallel.ring:
        converted = tuple(with_rings(stage) for stage in converted)
    splits = axis_splits(program, rules, zigzag_axes(converted))
    return Sliced(rules, weights, splits, stages, converted)


def make_parallel_plan(compiled: Compiled) -> ParallelPlan:
    """Emit the stages and collect what running them takes."""
    parallel = parallel_settings(compiled)
    sliced = slice_program(compiled)
    model = make_plan(compiled)
    held_by: dict[str, tuple[int, ...]] = {}
    for stage in sliced.stages:
        for parameter in iter_parameters(stage.program):
            held_by[parameter.name] = (*held_by.get(parameter.name, ()), stage.index)
    return ParallelPlan(
        model=model,
        mesh=mesh_sizes(parallel),
        splits=tuple(sliced.splits.values()),
        stages=tuple(
            _stage(compiled, sliced, stage, program)
            for stage, program in zip(sliced.stages, sliced.converted, strict=True)
        ),
        values=_crossings(compiled, sliced),
        parameters=stored_parameters(compiled.program, sliced.weights, model.parameters, held_by),
        schedule=parallel.schedule.name,
        zero=parallel.zero,
    )


def _stage(compiled: Compiled, sliced: Sliced, stage: StageProgram, program: Program) -> StageInfo:
    parallel = parallel_settings(compiled)
    stored = {
        number: sliced.weights[key].split
        for number, key in owners_of(program).items()
        if sliced.weights[key].split
    }
    linear = LATER if parallel.schedule.name == "zero_bubble" else "nn.Linear"
    name = compiled.program.model
    title = f"Stage {stage.index} of {len(sliced.stages)} of {name}: {stage.units}."
    emitted = emit_stage(
        program,
        Held(sliced.splits, stored, linear),
        title=title,
        recompute=parallel.recompute,
        source_name=compiled.source.name,
    )
    return StageInfo(
        index=stage.index,
        source=emitted.source,
        source_name=f"{name}_stage_{stage.index}.py",
        class_name=emitted.class_name,
        inputs=tuple(stage.inputs),
        receives=tuple(crossing.name for crossing in stage.receives),
        makes=tuple(stage.makes),
        sends=tuple(stage.sends),
        outputs=tuple(stage.outputs),
        losses=tuple(stage.losses),
        draws=program.forward.draws,
        units=stage.units,
        blocks=tuple(block_values(stage.program, sliced.rules).items()),
        renamed=tuple(emitted.renamed.items()),
    )


def _crossings(compiled: Compiled, sliced: Sliced) -> tuple[ValueInfo, ...]:
    found: dict[str, ValueInfo] = {}
    for stage in sliced.stages:
        for crossing in stage.receives:
            info = value_info(
                compiled.program, sliced.rules, crossing.value, crossing.name, grad=crossing.grad
            )
            found.setdefault(crossing.name, info)
    return tuple(found.values())


def num_ranks(parallel: ParallelSettings) -> int:
    """How many processes a plan needs."""
    return math.prod(size for _, size in mesh_sizes(parallel))
