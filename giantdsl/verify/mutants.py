"""Plans with one rule broken: does `verify` notice?

Each mutant changes the plan of a layout, its data or its emitted text, the way a hand-written
model gets it wrong. A mutant that a layout has no place for leaves it as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from giantdsl.plan import ParallelPlan, StoredParameter

Mutate = Callable[[ParallelPlan], ParallelPlan]

MUTANTS: dict[str, str] = {
    "copy": "a whole operand of a divided operation without its backward all-reduce",
    "gather_slices": "a sequence gather whose backward pass slices instead of reducing",
    "gather_sums": "a gather for whole computation whose backward pass reduces",
    "norms_alone": "gains and biases on divided sequences not summed over tp (Megatron-LM #1446)",
    "router_alone": "the router's weight not summed over tp (Megatron-LM #599)",
    "bias_summed": "biases that every rank has whole summed over tp all the same",
    "bias_partial": "a bias added by every rank to its partial result",
    "experts_summed": "weights of experts summed over ep",
    "data_alone": "gradients not summed over dp",
    "stages_alone": "a value between stages sent without its gradient",
    "mean_of_means": "the mean of the microbatches' means instead of one mean",
    "dropout_local": "dropout by an element's place on its rank, not in the whole tensor",
    "init_local": "initial values by an element's place on its rank",
    "positions_local": "rotary positions that start at 0 on every rank",
    "ring_open": "queries that see this rank's keys only, which go round no ring",
    "lookup_unmasked": "rows outside a rank's part of the vocabulary looked up all the same",
    "loss_local": "a softmax over this rank's part of the vocabulary only",
}


def mutated(plan: ParallelPlan, name: str) -> ParallelPlan | None:
    """The plan with rule `name` broken; None where the plan has no place for that."""
    if name == "mean_of_means":
        return plan
    broken = _MAKERS[name](plan)
    return None if broken == plan else broken


def _in_text(pattern: str, replacement: str, helper: str = "") -> Mutate:
    """Every match in the emitted text; `helper` is put at the end of a changed file."""

    def change(plan: ParallelPlan) -> ParallelPlan:
        stages = []
        for stage in plan.stages:
            text, count = re.subn(pattern, replacement, stage.source)
            stages.append(replace(stage, source=text + helper if count else text))
        return replace(plan, stages=tuple(stages))

    return change


def _in_sums(change: Callable[[StoredParameter], tuple[str, ...]]) -> Mutate:
    def apply(plan: ParallelPlan) -> ParallelPlan:
        parameters = tuple(replace(p, sum_over=change(p)) for p in plan.parameters)
        return replace(plan, parameters=parameters)

    return apply


def _without(mesh_axis: str, word: str = "") -> Mutate:
    return _in_sums(
        lambda p: (
            tuple(m for m in p.sum_over if m != mesh_axis) if word in p.info.name else p.sum_over
        )
    )


def _biases_summed(plan: ParallelPlan) -> ParallelPlan:
    if dict(plan.mesh).get("tp", 1) == 1:
        return plan

    def change(stored: StoredParameter) -> tuple[str, ...]:
        whole = not stored.splits and stored.info.name.endswith(".bias")
        return tuple(dict.fromkeys((*stored.sum_over, "tp"))) if whole else stored.sum_over

    return _in_sums(change)(plan)


def _experts_summed(plan: ParallelPlan) -> ParallelPlan:
    on_ep = {split.axis for split in plan.splits if "ep" in split.mesh}

    def change(stored: StoredParameter) -> tuple[str, ...]:
        divided = any(name in on_ep for _, name in stored.splits)
        return tuple(dict.fromkeys((*stored.sum_over, "ep"))) if divided else stored.sum_over

    return _in_sums(change)(plan)


def _stages_alone(plan: ParallelPlan) -> ParallelPlan:
    return replace(plan, values=tuple(replace(v, grad=False) for v in plan.values))


_ALONE = "\n\ndef unsummed(x: Tensor, group: object) -> Tensor:\n    return x\n"
_UNMASKED = """

def unmasked(x: Tensor, table: Tensor, part: object) -> Tensor:
    return nn.functional.embedding((x - part.start).clamp(0, table.size(0) - 1), table)
"""
_MAKERS: dict[str, Mutate] = {
    "copy": _in_text(r"(?<=[ (\[])copy_to\(", "unsummed(", _ALONE),
    "gather_slices": _in_text(
        r"(?<=[ (\[])all_gather\(",
        "gather_whole(",
        "\nfrom giantdsl.runtime.ops import gather_whole\n",
    ),
    "gather_sums": _in_text(
        r"(?<=[ (\[])gather_whole\(",
        "all_gather(",
        "\nfrom giantdsl.runtime.ops import all_gather\n",
    ),
    "norms_alone": _without("tp"),
    "router_alone": _without("tp", "router"),
    "bias_summed": _biases_summed,
    "bias_partial": _in_text(r"\+ (self\.\w+\.bias)\b", r"+ self.axes.tp.size * \1"),
    "experts_summed": _experts_summed,
    "data_alone": _without("dp"),
    "stages_alone": _stages_alone,
    "dropout_local": _in_text(r"(dropout\([^{}\n]*fold\([^{}\n]*\)), \{[^}]*\}", r"\1"),
    "init_local": _in_text(r"(normal_\([^{}]*?), \([\d, ]+\), \{[^}]*\}", r"\1"),
    "positions_local": _in_text(r"position=self\.axes\.\w+\.index\([\w.]*\),\s*", ""),
    "ring_open": _in_text(r",\s*keys=self\.axes\.\w+", ""),
    "lookup_unmasked": _in_text(r"(?<=[ (\[])embedding\(", "unmasked(", _UNMASKED),
    "loss_local": _in_text(r",\s*classes=self\.axes\.\w+", ""),
}
