"""How large a model is and how many stages its plan has, without emitting anything."""

from __future__ import annotations

from dataclasses import dataclass

from giantdsl.driver import Compiled, tokens_per_sample
from giantdsl.ir.flops import count_flops
from giantdsl.ir.parameters import count_parameters
from giantdsl.passes.stages import count_stages


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
        num_stages=count_stages(program, compiled.settings.parallel),
    )
