"""Attention whose keys go round instead of being gathered."""

from __future__ import annotations

from pathlib import Path

from giantdsl import resources
from giantdsl.driver import compile_spec
from giantdsl.ir.nodes import Op, Program, statements_of
from giantdsl.passes.rings import with_rings, zigzag_axes
from giantdsl.plan_text import plan_text
from giantdsl.planning import make_parallel_plan

from .slicing import sliced

GATHER = "all-gather s on cp (backward: reduce-scatter s)"


def ops(program: Program, kind: str) -> list[Op]:
    found = [s for f in program.functions for s in statements_of(f)]
    return [s for s in found if isinstance(s, Op) and s.kind == kind]


def test_keys_of_attention_are_gathered_no_more() -> None:
    program = with_rings(sliced("llama3", cp=2, cp_axes=("s",)).program)
    (attention,) = ops(program, "sdpa")
    assert attention.attrs["ring"] is True
    assert ops(program, "all_gather") == []
    assert zigzag_axes([program]) == {"s"}


def test_without_a_causal_mask_plain_order_is_as_good() -> None:
    program = with_rings(sliced("bert", cp=2, cp_axes=("s",)).program)
    assert all(op.attrs["ring"] for op in ops(program, "sdpa"))
    assert zigzag_axes([program]) == frozenset()


def test_keys_under_a_bias_are_gathered() -> None:
    """T5's encoder and decoder have one, its cross attention has none."""
    program = with_rings(sliced("t5", cp=2, cp_axes=("src", "tgt")).program)
    rings = [bool(op.attrs.get("ring")) for op in ops(program, "sdpa")]
    biased = ["bias" in str(op.attrs["extras"]) for op in ops(program, "sdpa")]
    assert True in rings and False in rings
    assert rings == [not b for b in biased]
    assert ops(program, "all_gather")


def test_without_cp_nothing_changes() -> None:
    program = sliced("llama3", tp=2).program
    assert [ops(with_rings(program), k) for k in ("sdpa", "all_gather")] == [
        ops(program, k) for k in ("sdpa", "all_gather")
    ]


def spec(tmp_path: Path, more: str = "") -> tuple[str, str]:
    """What a plan on cp shows, and the text of its stage."""
    plan = tmp_path / "plan.giant"
    plan.write_text("parallel { cp = 2;  shard s on cp" + more + " }\n")
    compiled = compile_spec(resources.model_path("llama3"), profiles=["tiny"], plan_file=plan)
    return plan_text(compiled), make_parallel_plan(compiled).stages[0].source


def test_the_plan_shows_the_same_conversions_and_marks_them(tmp_path: Path) -> None:
    shown, source = spec(tmp_path)
    assert shown.count(f"{GATHER}, in a ring\n") == 2
    assert "divided: s over cp in zigzag" in shown
    assert 's=Split(32, "cp", sequence=True, zigzag=True)' in source
    assert "queries=self.axes.s_cp, keys=self.axes.s_cp)" in source


def test_a_plan_may_gather_instead(tmp_path: Path) -> None:
    shown, source = spec(tmp_path, ";  ring = false")
    assert shown.count(f"{GATHER}\n") == 2 and "zigzag" not in shown
    assert source.count("all_gather(") >= 2 and "keys=" not in source
