"""Axes: broadcasting, order, primes, generics, `..`, index types, slices."""

from __future__ import annotations

import pytest

from giantdsl.ir.nodes import Op, Value

from .helpers import calls_of, codes, forward, function_of, ops_of, program_of


def last(body: str, result: str = "[b, s, d]", rest: str = "") -> Value:
    return program_of(forward(body, result, rest)).forward.results[0]


def ops(body: str, rest: str = "", result: str = "[b, s, d]") -> list[Op]:
    """All operations but the first embedding."""
    return ops_of(program_of(forward(body, result, rest)).forward)[1:]


# ---- order ---------------------------------------------------------------------------------


def test_another_order_is_a_permute() -> None:
    [first, second] = ops("y[s, b, d] = x\nreturn y")
    assert (first.kind, second.kind) == ("permute", "permute")
    assert first.result.type.axes == ("s", "b", "d")
    assert second.result.type.axes == ("b", "s", "d")


def test_the_declared_order_is_no_work() -> None:
    assert [op.kind for op in ops("y[b, s, d] = x * 2\nreturn y")] == ["scale"]


def test_a_rebound_name_keeps_its_order() -> None:
    found = ops("y[s, b, d] = x\ny = x * 2\nreturn x")
    assert [op.kind for op in found] == ["permute", "scale", "permute"]
    assert found[-1].result.type.axes == ("s", "b", "d")


def test_arguments_are_permuted_to_the_block() -> None:
    rest = "block same(y[d, s, b]) -> [d, s, b] { return y * 2 }"
    program = program_of(forward("return same(x)", rest=rest))
    assert [op.kind for op in ops_of(program.forward)] == ["embedding", "permute", "permute"]
    assert program.functions[0].params[0].type.axes == ("d", "s", "b")


def test_a_linear_writes_the_order_it_declares() -> None:
    [op] = ops("y = linear(x) -> [hd, s, b, heads]\nreturn x")
    assert op.result.type.axes == ("hd", "s", "b", "heads")
    assert op.weights[0].weight.axes == ("hd", "heads", "d")


# ---- broadcasting --------------------------------------------------------------------------


@pytest.mark.parametrize("expr", ["x + bias", "bias + x", "bias * x", "x - bias", "bias / x"])
def test_the_larger_operand_gives_the_axes(expr: str) -> None:
    assert last(f"bias = param() -> [d]\nreturn {expr}").type.axes == ("b", "s", "d")


def test_neither_has_all_axes() -> None:
    assert codes(forward("y = linear(x) -> [b, s, ff]\nreturn x + y")) == ["G202"]


def test_numbers() -> None:
    kinds = {
        "x * 2": "scale", "2 * x": "scale", "-x": "scale", "x / 4": "scale",
        "x + 1": "shift", "1 + x": "shift", "x - 1": "shift", "x ** 2": "power", "1 / x": "rdiv",
    }  # fmt: skip
    for expr, kind in kinds.items():
        assert [op.kind for op in ops(f"return {expr}")] == [kind], expr
    assert [op.kind for op in ops("return 1 - x")] == ["scale", "shift"]
    assert ops("return x - 3")[0].attrs["by"] == -3
    assert ops("return x / 4")[0].attrs["by"] == 0.25
    assert ops("return x * heads")[0].attrs["by"] == 4


# ---- index types ---------------------------------------------------------------------------


def test_a_table_is_sized_by_what_the_numbers_index() -> None:
    program = program_of(forward("return x"))
    [op] = ops_of(program.forward, "embedding")
    assert op.attrs["index"] == "vocab"
    assert op.weights[0].weight.axes == ("vocab", "d")


def test_positions_index_their_axis() -> None:
    found = ops("return x + embedding(positions(s)) as pos -> [s, d]")
    assert (found[0].kind, str(found[0].result.type)) == ("positions", "[s]: s")
    assert found[1].attrs["index"] == "s"


def test_a_generic_is_found_from_what_numbers_index() -> None:
    rest = """
    block lookup<v, c>(numbers[.., s]: v) -> [.., s, c] {
      return embedding(numbers) as table -> [.., s, c]
    }
    """
    program = program_of(forward("return x + lookup(tokens, c=d)", rest=rest))
    assert function_of(program, "Lookup").generics == {"v": "vocab", "c": "d"}
    assert function_of(program, "Lookup").params[0].type.dtype == "vocab"
    assert codes(forward("return x + lookup(keep, c=d)", rest=rest)) == ["G201"]


def test_int_takes_any_numbers() -> None:
    rest = "block f(x[b, s, d], n[b, s]: int) -> [b, s, d] { return x }"
    program = program_of(forward("return f(x, labels)", rest=rest))
    assert program.functions[0].params[1].type.dtype == "vocab"
    assert codes(forward("return f(x, keep)", rest=rest)) == ["G201"]


# ---- generics and `..` ---------------------------------------------------------------------


def test_generics_are_found_or_passed() -> None:
    rest = "block wide<c, e>(x[.., c]) -> [.., e] { return linear(x) as l -> [.., e] }"
    program = program_of(forward("return wide(wide(x, e=ff) as up, e=d) as down", rest=rest))
    assert [f.generics for f in program.functions[:2]] == [
        {"e": "ff", "c": "d"}, {"e": "d", "c": "ff"},
    ]  # fmt: skip
    assert codes(forward("return wide(x)", rest=rest)) == ["G207"]


def test_the_rest_is_whatever_comes_before() -> None:
    rest = "block same<c>(x[.., c]) -> [.., c] { return x * 2 }"
    assert last("return same(x)", rest=rest).type.axes == ("b", "s", "d")
    assert last("return same(x[s=0])", "[b, d]", rest).type.axes == ("b", "d")
    program = program_of(forward("y = same(x[s=0])\nreturn same(x)", rest=rest))
    assert len(program.functions) == 3


def test_the_rest_is_the_same_for_all_parameters() -> None:
    rest = "block both<c>(x[.., c], y[.., c]) -> [.., c] { return x + y }"
    assert not codes(forward("return both(x, x * 2)", rest=rest))
    assert codes(forward("return both(x, x[s=0])", rest=rest)) == ["G201"]


def test_without_parameters_the_rest_is_batch_and_sequence() -> None:
    assert last("return linear(linear(x) as a -> [.., ff]) as c -> [.., d]").type.axes == (
        "b", "s", "d",
    )  # fmt: skip


def test_one_axis_for_two_generics_is_primed_inside() -> None:
    rest = """
    block attend<q, k>(x[b, q, d], m[b, k, d]) -> [b, q, d] {
      bias = relative_bias(kv) -> [heads, q, k]
      return x
    }
    """
    function = function_of(program_of(forward("return attend(x, x)", rest=rest)), "Attend")
    [op] = ops_of(function, "relative_bias")
    assert op.result.type.axes == ("heads", "s", "s'")


# ---- primes --------------------------------------------------------------------------------


def test_a_primed_axis_is_another_one_of_the_size() -> None:
    [op] = ops("y = x[s as s']\nreturn x")
    assert (op.attrs["axis"], op.attrs["to"], op.result.type.axes) == ("s", "s'", ("b", "s'", "d"))
    assert codes(forward("return x + x[s as s']")) == ["G202"]


@pytest.mark.parametrize("text", ["x[b as b']", "param() -> [b', d]", "x[s as t]", "x[s as s]"])
def test_names_an_axis_cannot_take(text: str) -> None:
    assert len(codes(forward(f"y = {text}\nreturn x"))) == 1


# ---- parts ---------------------------------------------------------------------------------


def test_pick() -> None:
    [op] = ops("y = x[s=-1]\nreturn x")
    assert (op.kind, op.attrs, op.result.type.axes) == ("pick", {"axis": "s", "at": -1}, ("b", "d"))


def test_several_indices_follow_each_other() -> None:
    found = ops("y = x[s=0, d=3]\nreturn x")
    assert [op.kind for op in found] == ["pick", "pick"]
    assert found[-1].result.type.axes == ("b",)


def test_the_parts_of_a_sum_have_names() -> None:
    dims = """dims { b: batch; one: seq = 1; p: seq = 4; q: seq = 3; all: seq = one + p + q
                     d = 8; vocab = 9 }"""
    body = """
    y = param() -> [all, d]
    first = y[all=:1]
    middle = y[all=1:5]
    end = y[all=5:]
    whole = y[all=:]
    return x
    """
    text = forward(body, dims=dims).replace("[b, s", "[b, p")
    found = ops_of(program_of(text).forward)[2:]
    assert [op.result.type.axes for op in found] == [
        ("one", "d"), ("p", "d"), ("q", "d"), ("all", "d"),
    ]  # fmt: skip
    assert [(op.attrs["start"], op.attrs["stop"]) for op in found] == [
        (0, 1), (1, 5), (5, None), (0, None),
    ]  # fmt: skip


def test_other_parts_are_named_by_the_target() -> None:
    [op] = ops("y[b, t, d] = x[s=2:10]\nreturn x")
    assert (op.attrs["to"], op.result.type.axes) == ("t", ("b", "t", "d"))
    assert codes(forward("y[b, t, d] = x[s=2:9]\nreturn x")) == ["G226"]
    assert codes(forward("y = x[s=2:10]\nreturn x")) == ["G226"]


def test_concat_makes_a_sum() -> None:
    dims = "dims { b: batch; one: seq = 1; p: seq = 4; s: seq = one + p; d = 8; vocab = 9 }"
    body = "c = param() -> [one, d]\ny = concat(c, x[s=1:], along=s)\nreturn y"
    program = program_of(forward(body, dims=dims))
    [op] = ops_of(program.forward, "concat")
    assert op.attrs == {"along": "s", "parts": ("one", "p")}
    assert op.result.type.axes == ("b", "s", "d")
    swapped = body.replace("c, x[s=1:]", "x[s=1:], c")
    assert codes(forward(swapped, dims=dims)) == ["G225"]


def test_rearrange_splits_and_merges_products() -> None:
    dims = """dims { b: batch; s: seq = 2; ny = 2; py = 3; nx = 4; px = 5; h = ny * py
                     w = nx * px; p: seq = ny * nx; d = 8; vocab = 9 }"""
    body = "y = param() -> [h, w]\nz = rearrange(y) -> [p, py, px]\nreturn x"
    op = ops_of(program_of(forward(body, dims=dims)).forward, "rearrange")[0]
    assert op.attrs["source"] == ("ny", "py", "nx", "px")
    assert op.attrs["target"] == ("ny", "nx", "py", "px")
    assert codes(forward(body.replace("[p, py, px]", "[p, py]"), dims=dims)) == ["G224"]


# ---- linear --------------------------------------------------------------------------------


def test_what_a_linear_contracts() -> None:
    cases = {
        "linear(x) -> [b, s, ff]": (("d",), ("ff",), False),
        "linear(x)": (("d",), ("d",), True),
        "linear(x) -> [b, s, d]": (("d",), ("d",), True),
        "linear(x) -> [b, s]": (("d",), (), False),
        "linear(x) -> [b, s, heads, hd]": (("d",), ("heads", "hd"), False),
    }
    for text, expected in cases.items():
        [op] = ops(f"y = {text}\nreturn x")
        assert tuple(op.attrs[k] for k in ("contracted", "created", "square")) == expected, text


def test_several_axes_are_contracted_in_the_order_of_the_input() -> None:
    found = ops("y = linear(x) -> [b, s, heads, hd]\nreturn linear(y) as out -> [b, s, d]")
    assert found[1].attrs["contracted"] == ("heads", "hd")
    assert found[1].weights[0].weight.axes == ("d", "heads", "hd")


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("linear(x) -> [b, ff]", "G216"),
        ("linear(x) -> [s, ff]", "G216"),
        ("linear(x) -> [b, s, d, ff]", "G221"),
        ("linear(x) -> [b, s, t]", "G221"),
        ("linear(x) -> [b, t, ff]", "G216"),
        ("linear(tokens) -> [b, s, d]", "G231"),
    ],
)
def test_what_a_linear_may_not_do(text: str, code: str) -> None:
    assert codes(forward(f"y = {text}\nreturn x")) == [code]


# ---- layouts written in the spec ------------------------------------------------------------


def test_a_written_layout_is_kept() -> None:
    program = program_of(forward("h = linear(x) -> [b, s, heads@tp, hd]\nreturn x"))
    [op] = ops_of(program.forward, "linear")
    assert op.result.type.at == (("heads", "tp"),)
    assert str(op.result.type) == "[b, s, heads@tp, hd]"


def test_calls_are_seen_once_for_each_way_they_are_used() -> None:
    rest = "block half(x[b, s, d], by = 2) -> [b, s, d] { return x / by }"
    program = program_of(forward("return half(half(x)) + half(x, by=4)", rest=rest))
    assert [call.function.symbol for call in calls_of(program.forward)] == [
        "Half", "Half", "Half2",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        "rmsnorm(x, b)",
        "layernorm(x, over=b)",
        "relative_bias(b) -> [heads, s, s']",
        "positions(s, into=b)",
        "softmax(x, over=b)",
    ],
)
def test_nothing_counts_along_the_batch(text: str) -> None:
    assert codes(forward(f"y = {text}\nreturn x"))[0] in ("G228", "G225")


def test_numbers_index_axes_with_a_size() -> None:
    text = forward("return x").replace("labels[b, s]: vocab", "labels[b, s]: b")
    assert codes(text) == ["G102"]
    rest = "block f(x[b, s, d], n[b, s]: slot) -> [b, s, d] { return x }"
    assert codes(forward("return f(x, labels)", rest=rest)) == ["G102"]


def test_z_loss_has_classes() -> None:
    assert codes(forward("loss z = z_loss(x, over=b)\nreturn x")) == ["G228"]
