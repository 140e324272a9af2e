"""Combinations that would train wrongly, refused before a process starts. Imports no torch."""

from __future__ import annotations

from giantdsl.errors import SettingsError
from giantdsl.plan import ParallelPlan


def check_storage(plan: ParallelPlan, optimizer: str) -> None:
    """Raise SettingsError for a `zero` that the optimizer or the mesh does not go with."""
    zero, sizes = plan.zero, dict(plan.mesh)
    if zero not in (0, 1, 2, 3):
        raise SettingsError(f"`parallel.zero` is {zero}, which is not one of 0, 1, 2, 3")
    if zero > 0 and optimizer == "adafactor":
        raise SettingsError(
            f"`train.optimizer = adafactor` does not go with `parallel.zero = {zero}`: its steps "
            "need whole tensors; use `parallel.zero = 0` (its state is small) or adamw or sgd"
        )
    if zero == 3 and sizes.get("pp", 1) > 1:
        raise SettingsError(
            f"`parallel.zero = 3` does not go with `parallel.pp = {sizes['pp']}`: each microbatch "
            "would gather every weight again; use `parallel.zero = 2`"
        )
    if zero == 3 and len(plan.stages) > 1:
        raise SettingsError(
            f"`parallel.zero = 3` does not go with {len(plan.stages)} stages on one rank; "
            "use `parallel.stages = 1` or `parallel.zero = 2`"
        )
