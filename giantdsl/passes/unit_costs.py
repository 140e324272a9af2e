"""What each iteration of the loops in `forward` costs, to balance stages."""

from __future__ import annotations

from giantdsl.ir.flops import flops_counter
from giantdsl.ir.nodes import Program, Repeat
from giantdsl.ir.parameters import parameter_counter


def unit_costs(program: Program, by: str) -> list[float]:
    """One number an iteration, in order: with it goes what stands beside it on any cut.

    What precedes the first loop counts with the first iteration, what follows a loop with its
    last one, so that a stage with the head has fewer layers.

    Args:
      by: "params", elements of the weights owned there (a shared loop's with its first
        iteration); "flops", of one sample forward; "time", for which flops stand.
    """
    count = parameter_counter(program) if by == "params" else flops_counter(program)
    costs: list[float] = []
    waiting = 0.0
    for statement in program.forward.statements:
        if not isinstance(statement, Repeat):
            if costs:
                costs[-1] += count([statement])
            else:
                waiting += count([statement])
            continue
        each = [count(body.statements) for body in statement.bodies]
        for i, variant in enumerate(statement.pattern):
            is_owned = by != "params" or not statement.shared or i == 0
            costs.append((each[variant] if is_owned else 0) + waiting)
            waiting = 0.0
    return costs
