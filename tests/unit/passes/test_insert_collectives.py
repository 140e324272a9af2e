"""Which conversions stand where, and how weights lie: the rules of language.md 3 as literals."""

from __future__ import annotations

import pytest

from giantdsl.ir.nodes import Op, statements_of
from giantdsl.ir.verify import verify
from giantdsl.passes.layout_text import layout_lines

from .slicing import Case, sliced

MODELS = {
    "gpt2": ("s",),
    "llama3": ("s",),
    "demo": ("s",),
    "bert": ("s",),
    "t5": ("src", "tgt"),
    "mixtral": ("s",),
    "alternating": ("s",),
    "vit": (),
    "custom": (),
}


def lines(case: Case, block: str) -> list[str]:
    """The lines of a block without line numbers, its head left out."""
    found: list[str] = []
    inside = False
    for line in layout_lines(case.program, case.rules, case.weights):
        if not line.startswith(" "):
            inside = line.startswith(f"{block}(")
        elif inside:
            words = line.split()
            found.append(" ".join(words[1:] if words[0].isdigit() else words))
    return found


def test_a_llama_layer_under_tp_with_the_sequence_divided() -> None:
    case = sliced("llama3", tp=2, dp=2)
    assert lines(case, "Attention") == [
        "all-gather s on tp (backward: reduce-scatter s)",
        "linear w[heads@tp, hd, d] -> [b@dp, s, heads@tp, hd]",
        "linear w[kv@tp, hd, d] -> [b@dp, s, kv@tp, hd]",
        "linear w[kv@tp, hd, d] -> [b@dp, s, kv@tp, hd]",
        "rope -> [b@dp, s, heads@tp, hd]",
        "rope -> [b@dp, s, kv@tp, hd]",
        "sdpa -> [b@dp, s, heads@tp, hd]",
        "linear w[d, heads@tp, hd] -> [b@dp, s@tp, d]",
        "reduce-scatter s on tp (backward: all-gather s)",
    ]
    assert lines(case, "Decoder") == [
        "rmsnorm w[d] -> [b@dp, s@tp, d]",
        "attention: Attention -> [b@dp, s@tp, d]",
        "add -> [b@dp, s@tp, d]",
        "rmsnorm w[d] -> [b@dp, s@tp, d]",
        "mlp: Mlp -> [b@dp, s@tp, d]",
        "add -> [b@dp, s@tp, d]",
    ]


def test_without_the_soft_axis_values_are_whole_between_operations() -> None:
    case = sliced("llama3", tp=2, soft=False)
    assert lines(case, "Mlp") == [
        "copy on tp (backward: all-reduce)",
        "linear w[ff@tp, d] -> [b, s, ff@tp]",
        "linear w[ff@tp, d] -> [b, s, ff@tp]",
        "silu -> [b, s, ff@tp]",
        "mul -> [b, s, ff@tp]",
        "linear w[d, ff@tp] -> [b, s, d]",
        "all-reduce on tp (backward: copy)",
    ]


def test_tokens_go_to_experts_whole_over_tp() -> None:
    case = sliced("mixtral", tp=2, ep=2)
    assert lines(case, "Moe") == [
        "linear w[experts, d] -> [b@ep, s@tp, experts]",
        "softmax -> [b@ep, s@tp, experts]",
        "all-gather s on tp (backward: slice s)",
        "topk -> [b@ep, s]",
        "load_balance -> []",
        "scale -> []",
        "all-gather s on tp (backward: slice s)",
        "dispatch -> [experts@ep, slot, d]",
        "all-to-all on ep (backward: all-to-all)",
        "expert: Swiglu -> [experts@ep, slot, d]",
        "combine -> [b@ep, s@tp, d]",
        "all-to-all on ep (backward: all-to-all)",
        "slice s on tp (backward: all-gather s)",
    ]


def test_a_bias_joins_the_finished_result() -> None:
    case = sliced("gpt2", tp=2)
    assert lines(case, "Mlp")[-2:] == [
        "linear w[d, ff@tp] b[d] -> [b, s@tp, d]",
        "reduce-scatter s on tp (backward: all-gather s), then the bias",
    ]


def test_keys_are_gathered_where_queries_are_divided() -> None:
    case = sliced("llama3", cp=2, cp_axes=("s",))
    found = lines(case, "Attention")
    assert found.count("all-gather s on cp (backward: reduce-scatter s)") == 2
    assert "sdpa -> [b, s@cp, heads, hd]" in found


def sums(case: Case) -> dict[str, set[str]]:
    """By sorted mesh axes, `block.member.leaf` of the weights whose gradients are summed there."""
    found: dict[str, set[str]] = {}
    for (symbol, member, leaf), layout in case.weights.items():
        key = " ".join(sorted(layout.sum_over)) or "none"
        found.setdefault(key, set()).add(f"{symbol}.{member}.{leaf}")
    return found


def test_gains_are_summed_over_tp_where_the_sequence_is_divided() -> None:
    found = sums(sliced("llama3", tp=2))
    assert found["tp"] == {"Decoder.norm1.weight", "Decoder.norm2.weight", ".norm.weight"}
    assert set(sums(sliced("llama3", tp=2, soft=False))) == {"none"}


def test_experts_are_summed_over_dp_only() -> None:
    found = sums(sliced("mixtral", dp=2, ep=2, tp=2))
    experts = {f"Swiglu.{member}.weight" for member in ("gate", "up", "down")}
    assert found["dp"] == experts
    norms = {"Decoder.norm1.weight", "Decoder.norm2.weight", ".norm.weight"}
    assert found["dp ep tp"] == norms | {"Moe.router.weight"}


def test_a_weight_is_divided_only_if_every_use_is() -> None:
    case = sliced("mixtral", ep=2)
    assert case.weights[("Swiglu", "gate", "weight")].split == (("experts", "ep"),)
    assert case.weights[("Moe", "router", "weight")].split == ()


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("soft", [True, False])
@pytest.mark.parametrize("sizes", [{"tp": 2}, {"cp": 2}, {"tp": 2, "cp": 2, "dp": 2, "ep": 2}])
def test_programs_stay_well_formed(name: str, soft: bool, sizes: dict[str, int]) -> None:
    case = sliced(name, cp_axes=MODELS[name], soft=soft, **sizes)
    verify(case.program)


@pytest.mark.parametrize("name", MODELS)
def test_one_process_has_no_conversions(name: str) -> None:
    case = sliced(name)
    ops = [s for f in case.program.functions for s in statements_of(f) if isinstance(s, Op)]
    assert not any("mesh" in op.attrs or "split" in op.attrs for op in ops)


def test_a_value_is_converted_once_for_all_who_want_it_so() -> None:
    """q, k and v share one gather, and so do gate and up."""
    for block in ("Attention", "Mlp"):
        found = lines(sliced("llama3", tp=2), block)
        assert sum(line.startswith("all-gather") for line in found) == 1
