"""How large a model is and how many stages its plan has, without emitting anything."""

from __future__ import annotations

from dataclasses import dataclass

from giantdsl.attrs import Config
from giantdsl.driver import Compiled, tokens_per_sample
from giantdsl.ir.flops import count_flops
from giantdsl.ir.nodes import Function, Repeat, StageMark
from giantdsl.ir.parameters import count_parameters


@dataclass(frozen=True, slots=True)
class Summary:
    """`flops_per_token` is forward only, for the longest sequence; a multiply-add counts two."""

    num_parameters: int
    flops_per_token: float
    num_stages: int


def summarize(compiled: Compiled) -> Summary:
    """Count parameters, work and stages of a compiled spec."""
    program = compiled.program
    return Summary(
        num_parameters=count_parameters(program),
        flops_per_token=count_flops(program) / tokens_per_sample(program),
        num_stages=count_stages(compiled),
    )


def count_stages(compiled: Compiled) -> int:
    """What the plan says: a list of counts, else the marks in the spec, else one for each rank.

    On one pipeline rank there is nothing to cut: the marks then cut nothing.
    """
    parallel = compiled.settings.parallel
    if parallel is None or parallel.pp == 1:
        return 1
    if isinstance(parallel.stages, tuple):
        return len(parallel.stages)
    is_auto = isinstance(parallel.stages, Config) and parallel.stages.name == "auto"
    marks = count_marks(compiled.program.forward) if is_auto else 0
    return marks + 1 if marks else max(parallel.pp, 1)


def count_marks(forward: Function) -> int:
    """Stage boundaries written in `forward`, those of loops once an iteration that has one."""
    total = 0
    for statement in forward.statements:
        if isinstance(statement, StageMark):
            total += 1
        elif isinstance(statement, Repeat):
            total += _marks_of(statement)
    return total


def _marks_of(loop: Repeat) -> int:
    if loop.every:
        # A boundary after the last iteration would only part the loop from what follows it.
        own = (loop.count - 1) // loop.every
    else:
        own = 0
    inside = [
        sum(isinstance(s, StageMark) for s in body.statements)
        + sum(_marks_of(s) for s in body.statements if isinstance(s, Repeat))
        for body in loop.bodies
    ]
    return own + sum(inside[which] for which in loop.pattern)
