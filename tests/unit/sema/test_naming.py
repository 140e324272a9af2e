"""Names of layers and of logical parameters; ties."""

from __future__ import annotations

import pytest

from giantdsl.ir.nodes import Repeat

from .helpers import calls_of, codes, forward, function_of, loops_of, names_of, ops_of, program_of

MLP = """
block mlp(x[b, s, d]) -> [b, s, d] {
  y = linear(x) as up -> [b, s, ff]
  return linear(y, bias=true) as down -> [b, s, d]
}
"""


def names(body: str, rest: str = "", result: str = "[b, s, d]") -> list[str]:
    found = names_of(program_of(forward(body, result, rest)))
    assert found[0] == "tok.weight"
    return found[1:]


def test_a_layer_is_named_by_as_by_its_variable_or_by_its_operation() -> None:
    assert names("return linear(x) as head") == ["head.weight"]
    assert names("q = linear(x)\nreturn q") == ["q.weight"]
    assert names("return linear(x)") == ["linear.weight"]
    assert names("q = linear(x) as head\nreturn q") == ["head.weight"]


def test_a_name_that_is_bound_already_names_nothing() -> None:
    """`x = linear(x)` would call every layer x."""
    assert names("x = linear(x)\nreturn x") == ["linear.weight"]


def test_only_the_outermost_call_takes_the_variable() -> None:
    assert names("h = linear(rmsnorm(x))\nreturn h") == ["rmsnorm.weight", "h.weight"]
    assert names("h = gelu(linear(x))\nreturn h") == ["linear.weight"]


def test_a_block_is_named_by_as_or_by_itself() -> None:
    assert names("y = mlp(x)\nreturn y", MLP) == ["mlp.up.weight", "mlp.down.weight",
                                                   "mlp.down.bias"]  # fmt: skip
    assert names("return mlp(x) as wide", MLP)[0] == "wide.up.weight"


def test_names_count_loops() -> None:
    assert names("repeat 2 { x = linear(x) as l }\nreturn x") == ["l.0.weight", "l.1.weight"]
    nested = names("repeat 2 { repeat 3 { x = linear(x) as l } }\nreturn x")
    assert nested == [f"l.{i}.{j}.weight" for i in range(2) for j in range(3)]
    assert names("repeat 1 { x = mlp(x) }\nreturn x", MLP)[0] == "mlp.0.up.weight"


def test_loops_inside_blocks_count_behind_the_inner_name() -> None:
    rest = MLP + "\nblock two(x[b, s, d]) -> [b, s, d] { repeat 2 { x = mlp(x) }\n return x }\n"
    found = names("repeat 2 { x = two(x) }\nreturn x", rest)
    assert found[0] == "two.0.mlp.0.up.weight"
    assert found[-1] == "two.1.mlp.1.down.bias"
    assert len(found) == 12


def test_shared_loops_do_not_count() -> None:
    assert names("repeat 4 shared { x = linear(x) as l }\nreturn x") == ["l.weight"]
    inner = "repeat 2 { repeat 4 shared { x = linear(x) as l } }\nreturn x"
    assert names(inner) == ["l.0.weight", "l.1.weight"]
    outer = "repeat 4 shared { repeat 2 { x = linear(x) as l } }\nreturn x"
    assert names(outer) == ["l.0.weight", "l.1.weight"]


def test_a_bare_parameter_has_no_leaf() -> None:
    assert names("p = param() -> [s, d]\nreturn x + p") == ["p"]
    assert names("repeat 2 { x = x + param() as p -> [d] }\nreturn x") == ["p.0", "p.1"]


def test_no_layers_in_a_loop_that_never_runs() -> None:
    program = program_of(forward("repeat 0 { x = linear(x) as l }\nreturn x"))
    assert names_of(program) == ["tok.weight"]
    assert not loops_of(program.forward)


def test_equal_names_are_an_error_in_one_function_only() -> None:
    assert codes(forward("return linear(x) as q + linear(x) as q")) == ["G204"]
    assert codes(forward("repeat 2 { x = linear(x) as q }\nreturn linear(x) as q")) == ["G204"]
    assert not codes(forward("return mlp(x) + linear(x) as up", rest=MLP))


def test_blocks_without_weights_may_be_used_twice() -> None:
    half = "block half(x[b, s, d]) -> [b, s, d] { return x / 2 }"
    assert not codes(forward("return half(x) + half(x)", rest=half))


def test_branches_of_a_loop_may_name_the_same_layer() -> None:
    body = (
        "repeat i in 3 { if i == 1 { x = linear(x) as q } else { x = linear(x, bias=true) as q } }"
    )
    assert names(f"{body}\nreturn x") == [
        "q.0.weight", "q.0.bias", "q.1.weight", "q.2.weight", "q.2.bias",
    ]  # fmt: skip


# ---- fused products ------------------------------------------------------------------------


def test_several_result_types_are_one_product() -> None:
    body = "q, k, v = linear(x) -> [b, s, heads, hd], [b, s, kv, hd], [b, s, kv, hd]\nreturn x"
    program = program_of(forward(body))
    linears = ops_of(program.forward, "linear")
    assert [op.layer for op in linears] == ["q", "k", "v"]
    assert len({op.fuse for op in linears}) == 1
    assert linears[0].fuse is not None
    assert [op.attrs["created"] for op in linears] == [("heads", "hd"), ("kv", "hd"), ("kv", "hd")]
    assert all(op.inputs == linears[0].inputs for op in linears)


def test_two_fused_calls_are_two_products() -> None:
    body = """
    q, k = linear(x) -> [b, s, ff], [b, s, ff]
    g, u = linear(x) -> [b, s, ff], [b, s, ff]
    return x
    """
    fuses = [op.fuse for op in ops_of(program_of(forward(body)).forward, "linear")]
    assert fuses[0] == fuses[1] != fuses[2] == fuses[3]


# ---- ties ----------------------------------------------------------------------------------


def test_a_tied_layer_owns_nothing_but_its_bias() -> None:
    body = "return linear(x, tie=tok, bias=true) as head -> [b, s, vocab]"
    program = program_of(forward(body, "[b, s, vocab]"))
    assert names_of(program) == ["tok.weight", "head.bias"]
    [head] = ops_of(program.forward, "linear")
    [tok] = ops_of(program.forward, "embedding")
    assert head.weight("weight").weight is tok.weight("weight").weight  # type: ignore[union-attr]
    assert head.weight("weight").tied  # type: ignore[union-attr]
    assert not head.weight("bias").tied  # type: ignore[union-attr]


def test_ties_inside_a_loop_stay_in_the_iteration() -> None:
    body = """
    repeat 2 {
      y = linear(x) as up -> [b, s, ff]
      x = linear(y, tie=up) as down -> [b, s, d]
    }
    return x
    """
    program = program_of(forward(body))
    assert names_of(program)[1:] == ["up.0.weight", "up.1.weight"]
    down = ops_of(program.forward, "linear")[1]
    assert (down.attrs["contracted"], down.attrs["created"]) == (("ff",), ("d",))


def test_a_tie_reaches_into_a_block_that_was_used() -> None:
    body = "x = mlp(x)\ny = linear(x, tie=mlp.up) -> [b, s, ff]\nreturn x"
    program = program_of(forward(body, rest=MLP))
    use = ops_of(program.forward, "linear")[0].weights[0]
    assert use.path == (("mlp", ()),)
    assert use.weight is function_of(program, "Mlp").weights[0]
    assert "y.weight" not in names_of(program)


@pytest.mark.parametrize(
    "body",
    [
        "y = linear(x, tie=later) -> [b, s, ff]\nz = linear(x) as later -> [b, s, ff]\nreturn x",
        "repeat 2 { y = linear(x) as up -> [b, s, ff] }\n"
        "z = linear(x, tie=up) -> [b, s, ff]\nreturn x",
        "y = linear(x, tie=tok) -> [b, s, ff]\nreturn x",
    ],
)
def test_ties_that_cannot_be(body: str) -> None:
    assert codes(forward(body)) == ["G219"]


# ---- per -----------------------------------------------------------------------------------


def test_per_gives_every_weight_of_a_block_the_axis() -> None:
    rest = """
    block expert(x[experts, slot, d]) -> [experts, slot, d] {
      h = rmsnorm(x) as norm
      p = param(init=zeros) -> [experts, d]
      return linear(linear(h, bias=true) as up -> [experts, slot, ff]) as down -> [experts, slot, d]
    }
    """
    body = """
    route = topk(softmax(linear(x) as router -> [b, s, experts], over=experts), 2, over=experts)
    y = expert(dispatch(x, route) -> [experts, slot, d], per=experts)
    return combine(y, route)
    """
    program = program_of(forward(body, rest=rest))
    weights = {w.member + "." + w.leaf: w for w in function_of(program, "Expert").weights}
    assert {name: w.axes for name, w in weights.items()} == {
        "norm.weight": ("experts", "d"),
        "p.": ("experts", "d"),
        "up.weight": ("experts", "ff", "d"),
        "up.bias": ("experts", "ff"),
        "down.weight": ("experts", "d", "ff"),
    }
    assert all(w.per == ("experts",) for w in weights.values())


def test_per_on_a_single_layer() -> None:
    body = "y = expand(x) -> [b, s, experts, d]\nz = linear(y, per=experts) as z\nreturn x"
    [op] = ops_of(program_of(forward(body)).forward, "linear")
    assert op.attrs["contracted"] == op.attrs["created"] == ("d",)
    assert op.attrs["square"] is True
    assert op.weights[0].weight.axes == ("experts", "d", "d")


def test_a_block_used_with_and_without_per_is_two_functions() -> None:
    rest = "block same<d>(x[.., d]) -> [.., d] { return linear(x) as l }"
    body = "y = same(expand(x) -> [b, s, experts, d], per=experts) as a\nreturn same(x) as c"
    program = program_of(forward(body, rest=rest))
    assert [call.function.symbol for call in calls_of(program.forward)] == ["Same", "Same2"]
    assert names_of(program)[1:] == ["a.l.weight", "c.l.weight"]


# ---- loops in the program ------------------------------------------------------------------


def test_loops_stay_loops() -> None:
    program = program_of(forward("repeat 1000 { x = linear(x) as l }\nreturn x"))
    loop: Repeat = loops_of(program.forward)[0]
    assert (loop.count, len(loop.bodies), loop.pattern) == (1000, 1, (0,) * 1000)
    assert len(names_of(program)) == 1001
