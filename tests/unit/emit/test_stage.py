"""What the file of a stage asks of the runtime."""

from __future__ import annotations

import pytest

from giantdsl import resources
from giantdsl.driver import compile_spec
from giantdsl.planning import make_parallel_plan


@pytest.mark.parametrize(("schedule", "later"), [("zero_bubble", True), ("1f1b", False)])
def test_zero_bubble_puts_off_weights_whose_bias_joins_a_sum(schedule: str, later: bool) -> None:
    overrides = ("parallel.pp=2", "parallel.tp=2", f"parallel.schedule={schedule}")
    spec = compile_spec(resources.model_path("gpt2"), profiles=["tiny"], overrides=overrides)
    for stage in make_parallel_plan(spec).stages:
        called = "self.out.product(o.flatten(-2))"
        read = "F.linear(o.flatten(-2), self.out.weight)"
        assert (called in stage.source, read in stage.source) == (later, not later)
