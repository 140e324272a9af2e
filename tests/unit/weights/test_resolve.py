"""Maps against programs: rules, and every way to be wrong."""

from __future__ import annotations

import time

import pytest

from giantdsl.diagnostics import Diagnostic, Sink, render
from giantdsl.ir.nodes import Program
from giantdsl.ir.parameters import iter_parameters
from giantdsl.weights.recipe import MEMBER, UNIT, Transfer, WeightMap
from giantdsl.weights.resolve import resolve

from .made import (
    GPT_MAP,
    call,
    function,
    gpt,
    linear,
    op,
    parse_weights,
    program,
    repeat,
    span_text,
    weight,
)


def good(text: str, of: Program) -> WeightMap:
    sink = Sink()
    found = resolve(parse_weights(text), of, sink)
    assert sink.diagnostics == []
    assert found is not None
    return found


def bad(text: str, of: Program) -> Diagnostic:
    sink = Sink()
    assert resolve(parse_weights(text), of, sink) is None
    assert len(sink.diagnostics) == 1, [str(d) for d in sink.diagnostics]
    return sink.diagnostics[0]


def by_name(found: WeightMap) -> dict[str, Transfer]:
    transfers = list(found.transfers())
    names = {t.stored: t for t in transfers}
    assert len(names) == len(transfers)
    return names


def test_every_parameter_is_in_exactly_one_transfer() -> None:
    of = gpt()
    placed = [p for t in good(GPT_MAP, of).transfers() for p in t.parameters]
    assert sorted(placed) == sorted(p.name for p in iter_parameters(of))


def test_fused_layers_and_their_biases() -> None:
    found = by_name(good(GPT_MAP, gpt()))
    fused = found["t.h.1.c_attn.weight"]
    assert fused.parameters == tuple(f"decoder.1.attention.{n}.weight" for n in "qkv")
    assert fused.recipe.dims == (("d",), (MEMBER, "heads", "hd"))
    assert fused.recipe.stored_shape() == (6, 18)
    assert fused.recipe.shape == (6, 6)
    bias = found["t.h.1.c_attn.bias"]
    assert bias.recipe.dims == ((MEMBER, "heads", "hd"),)
    assert bias.recipe.stored_shape() == (18,)


def test_transposed() -> None:
    found = by_name(good(GPT_MAP, gpt()))
    assert found["t.h.0.c_proj.weight"].recipe.dims == (("heads", "hd"), ("d",))
    assert found["t.h.0.c_proj.bias"].recipe.dims == (("d",),)


def test_tied_layer_keeps_its_own_bias_and_padding_is_known() -> None:
    found = by_name(good(GPT_MAP, gpt()))
    assert found["cls.bias"].parameters == ("head.bias",)
    table = found["t.wte.weight"]
    assert table.is_tied
    assert table.recipe.dims == (("vocab",), ("d",))
    assert table.recipe.stored_shape() == (10, 6)
    assert table.recipe.stored_shape(padded=True) == (12, 6)
    assert not found["t.h.0.ln.weight"].is_tied


def test_one_tensor_for_each_expert() -> None:
    of = program(function("forward", linear("w1", "ff", "d", "experts")))
    found = by_name(good('weights hf { w1 = "e.{experts}.w1" }', of))
    assert list(found) == [f"e.{i}.w1.weight" for i in range(4)]
    third = found["e.2.w1.weight"]
    assert (third.at, third.recipe.dims) == ((2,), (("ff",), ("d",)))
    assert third.recipe.stored_shape() == (8, 6)
    assert third.recipe.shape == (4, 8, 6)


def test_experts_stacked_by_default_and_in_a_layout() -> None:
    of = program(function("forward", linear("w1", "ff", "d", "experts")))
    plain = by_name(good('weights hf { w1 = "w1" }', of))["w1.weight"]
    assert plain.recipe.dims == (("experts",), ("ff",), ("d",))
    swapped = by_name(good('weights hf { w1 = "w1" [experts, d, ff] }', of))["w1.weight"]
    assert swapped.recipe.dims == (("experts",), ("d",), ("ff",))
    turned = by_name(good('weights hf { w1 = "w1".T }', of))["w1.weight"]
    assert turned.recipe.dims == (("experts",), ("d",), ("ff",))


def test_bare_parameter_has_no_suffix_and_may_have_unit_dimensions() -> None:
    of = program(
        function(
            "forward", op("cls", weight("cls", "", "one d")), op("pos", weight("pos", "", "s d"))
        )
    )
    found = by_name(
        good('weights hf { cls = "a.cls" [one, one, d]; pos = "a.pos" [one, s, d] }', of)
    )
    assert found["a.cls"].recipe.dims == (("one",), (UNIT,), ("d",))
    assert found["a.pos"].recipe.stored_shape() == (1, 5, 6)
    assert by_name(good('weights hf { cls = "c"; pos = "p" }', of))["c"].recipe.shape == (1, 6)


def test_square_map_knows_its_two_sides_apart() -> None:
    of = program(function("forward", linear("w", "d", "d")))
    assert by_name(good('weights hf { w = "w".T }', of))["w.weight"].recipe.dims == (
        ("d'",),
        ("d",),
    )
    turned = by_name(good('weights hf { w = "w" [d\', d] }', of))["w.weight"]
    assert turned.recipe.dims == (("d'",), ("d",))
    plain = by_name(good('weights hf { w = "w" [d, d] }', of))["w.weight"]
    assert plain.recipe.dims == (("d",), ("d'",))


def test_convolution_layout_leaves_the_bias_alone() -> None:
    of = program(function("forward", linear("patch", "d", "c py px", bias=True)))
    found = by_name(good('weights hf { patch = "p" [d, c, py, px] }', of))
    assert found["p.weight"].recipe.stored_shape() == (6, 3, 2, 2)
    assert found["p.bias"].recipe.stored_shape() == (6,)


def test_weight_and_bias_on_lines_of_their_own() -> None:
    of = program(function("forward", linear("up", "ff", "d", bias=True)))
    found = by_name(good('weights hf { up.weight = "w_up"; up.bias = "b_up" }', of))
    assert {name: t.parameters for name, t in found.items()} == {
        "w_up": ("up.weight",),
        "b_up": ("up.bias",),
    }


def test_loops_inside_loops_and_iterations_that_differ() -> None:
    first, other = function("l", linear("a", "ff", "d")), function("l", linear("a", "d", "ff"))
    inner = repeat([call(first)], [call(other)], pattern=[0, 1, 1])
    of = program(first, other, function("forward", repeat([inner], pattern=[0, 0])))
    found = by_name(good('weights hf { l.*.* = "g.*.l.*" { a = "a" } }', of))
    assert len(found) == 6
    assert found["g.1.l.2.a.weight"].parameters == ("l.1.2.a.weight",)
    assert found["g.1.l.0.a.weight"].recipe.shape == (8, 6)
    assert found["g.1.l.2.a.weight"].recipe.shape == (6, 8)


def test_shared_loop_has_one_set_of_weights() -> None:
    block = function("tail", linear("a", "ff", "d"))
    of = program(block, function("forward", repeat([call(block)], pattern=[0, 0], shared=True)))
    assert list(by_name(good('weights hf { tail.a = "t" }', of))) == ["t.weight"]


def test_checking_does_not_expand_loops() -> None:
    of = gpt(layers=100_000_000 // 100)
    before = time.perf_counter()
    found = good(GPT_MAP, of)
    assert time.perf_counter() - before < 0.5
    assert len(found.rules) < 20


# ---- faults -------------------------------------------------------------------------------


TRANSCRIPT_27 = """\
error[G501]: no layer `decoder.*.atention.q`
 --> map.giant:2:3
  |
2 |   decoder.*.atention.q = "model.layers.*.q_proj"
  |   ^^^^^^^^^^^^^^^^^^^^ the model has no such layer
  |
  = help: did you mean `decoder.*.attention.q`?"""


def test_no_such_layer_reads_like_transcript_27() -> None:
    fault = bad('weights hf {\n  decoder.*.atention.(q, k, v) = "x.*" [d, (_ heads hd)]\n}', gpt())
    assert fault.code == "G501"
    assert fault.message == "no layer `decoder.*.atention.q`"
    fault = bad('weights hf {\n  decoder.*.atention.q = "model.layers.*.q_proj"\n}', gpt())
    assert render(fault) == TRANSCRIPT_27
    assert fault.fixes[0].text == "decoder.*.attention.q"


def test_inside_a_prefix_the_help_is_what_to_type_there() -> None:
    fault = bad(GPT_MAP.replace("    norm =", "    nrom ="), gpt())
    assert (fault.code, fault.message) == ("G501", "no layer `decoder.*.nrom`")
    assert fault.help == "did you mean `norm`?"
    assert [(span_text(f.span), f.text) for f in fault.fixes] == [("nrom", "norm")]


def test_a_wrong_prefix_is_reported_once() -> None:
    fault = bad(GPT_MAP.replace("decoder.*", "decodr.*"), gpt())
    assert (fault.code, fault.message) == ("G501", "no layer `decodr.*`")
    assert fault.help == "did you mean `decoder.*`?"


def test_block_and_tied_layer_are_no_layers() -> None:
    fault = bad(GPT_MAP.replace('up = "c_fc"', 'up = "c_fc"; attention = "a"'), gpt())
    assert fault.message == "`decoder.*.attention` is not one layer"
    assert fault.primary.text == "holds k, out, q, v"
    fault = bad(GPT_MAP.replace('head = "cls"', 'head = "cls"; logits = "lm_head"'), gpt())
    assert (fault.code, fault.message) == ("G501", "`logits` has no weight of its own")


def test_missing_weights_are_named() -> None:
    text = GPT_MAP.replace('    norm = "ln"\n', "").replace('  head = "cls"\n', "")
    fault = bad(text, gpt())
    assert fault.code == "G502"
    assert fault.message == "`weights hf` does not place every weight"
    assert fault.help == "missing: `decoder.*.norm`, `head`"
    assert span_text(fault.primary.span) == "hf"


def test_long_lists_are_cut() -> None:
    fault = bad("weights hf { }", gpt())
    assert fault.help is not None and fault.help.endswith("and 4 more")


@pytest.mark.parametrize(
    ("old", "new", "name"),
    [
        ('    up = "c_fc"', '    up = "c_fc"; up = "c_fc2"', "decoder.*.up.weight"),
        ('    up = "c_fc"', '    up = "ln"', "t.h.*.ln.weight"),
        ('  head = "cls"', '  head.bias = "t.h.17.ln.bias"', "t.h.*.ln.bias"),
        ("(q, k, v)", "(q, q, k, v)", "decoder.*.attention.q.weight"),
    ],
)
def test_twice(old: str, new: str, name: str) -> None:
    sink = Sink()
    assert resolve(parse_weights(GPT_MAP.replace(old, new)), gpt(), sink) is None
    assert {d.code for d in sink.diagnostics} == {"G503"}
    assert name in sink.diagnostics[0].message


@pytest.mark.parametrize(
    ("old", "new", "code", "where"),
    [
        ("[d, (_ heads hd)]", "[d, (_ heads)]", "G504", "d, (_ heads)"),
        ("[d, (_ heads hd)]", "[d, (heads hd)]", "G504", "d, (heads hd)"),
        ("[d, (_ heads hd)]", "", "G504", '"c_attn"'),
        ("[d, (_ heads hd)]", "[d, (_ heads hd kv ff)]", "G504", "ff"),
        ("[d, (_ heads hd)]", "[d, (_ heads heads hd)]", "G504", "heads"),
        ("[d, (_ heads hd)]", "[(_ d), (_ heads hd)]", "G504", "_"),
        ("[d, (_ heads hd)]", ".T [d, (_ heads hd)]", "G504", '"c_attn"'),
        ("[d, (_ heads hd)]", "[d, (_ haeds hd)]", "G505", "haeds"),
        ('"c_fc"', '"c_fc" [ff, (_ d)]', "G504", "ff, (_ d)"),
        ('"c_fc"', '"c_fc.{experts}"', "G505", '"c_fc.{experts}"'),
        ('"c_fc"', '"c_fc.{expert}"', "G505", '"c_fc.{expert}"'),
        ('"c_fc"', '"c_fc.{d}"', "G505", '"c_fc.{d}"'),
        ('"c_fc"', '"c_fc.*"', "G505", '"c_fc.*"'),
        ('"t.h.*"', '"t.h"', "G505", None),
        ('"ln"', '"ln".T', "G504", '"ln"'),
        ('"t.h.*"', '"t.h.*" [d]', "G504", '"t.h.*"'),
    ],
)
def test_layouts_and_names_that_do_not_fit(
    old: str, new: str, code: str, where: str | None
) -> None:
    sink = Sink()
    text = GPT_MAP.replace(old, new)
    assert text != GPT_MAP
    assert resolve(parse_weights(text), gpt(), sink) is None
    assert {d.code for d in sink.diagnostics} == {code}
    if where is not None:
        assert len(sink.diagnostics) == 1
        assert span_text(sink.diagnostics[0].primary.span) == where
    assert all(d.help for d in sink.diagnostics)


def test_layers_with_different_axes_are_not_fused() -> None:
    of = program(function("forward", linear("q", "heads hd", "d"), linear("k", "kv hd", "d")))
    fault = bad('weights hf { (q, k) = "qk" [(_ heads hd), d] }', of)
    assert (fault.code, fault.message) == ("G504", "`q` and `k` have different axes")


def test_a_bias_per_expert_needs_its_own_line() -> None:
    of = program(
        function(
            "forward",
            linear("w", "ff", "d", "experts"),
        )
    )
    assert bad('weights hf { w = "w.{experts}" [ff, d, experts] }', of).code == "G504"
