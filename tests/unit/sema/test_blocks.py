"""Blocks: parameters, optional tensors, branches, imports, defaults, Python operations, experts."""

from __future__ import annotations

import pytest

from giantdsl.attrs import Config

from .helpers import codes, diagnose, forward, function_of, names_of, ops_of, program_of, spec

# ---- parameters ----------------------------------------------------------------------------


OPTIONAL = """
block f(x[b, s, d], extra[b, s, d] = none, scale = 1) -> [b, s, d] {
  if extra != none { x = x + linear(extra) as mix -> [b, s, d] } else { x = x * scale }
  return x
}
"""


def test_an_optional_tensor_that_is_given() -> None:
    program = program_of(forward("return f(x, x)", rest=OPTIONAL))
    function = function_of(program, "F")
    assert [p.name for p in function.params] == ["x", "extra"]
    assert names_of(program)[1:] == ["f.mix.weight"]


def test_an_optional_tensor_that_is_left_out() -> None:
    program = program_of(forward("return f(x, scale=3)", rest=OPTIONAL))
    function = function_of(program, "F")
    assert [p.name for p in function.params] == ["x"]
    assert [op.kind for op in ops_of(function)] == ["scale"]
    assert function.static["scale"] == 3
    assert not names_of(program)[1:]


def test_an_optional_tensor_can_be_passed_on() -> None:
    rest = (
        OPTIONAL
        + """
    block g(x[b, s, d], more[b, s, d] = none) -> [b, s, d] { return f(x, extra=more) }
    """
    )
    assert "g.f.mix.weight" in names_of(program_of(forward("return g(x, x)", rest=rest)))
    assert "g.f.mix.weight" not in names_of(program_of(forward("return g(x)", rest=rest)))


def test_defaults_are_of_the_file_of_the_block() -> None:
    rest = "block f(x[b, s, d], by = 2 * heads) -> [b, s, d] { return x * by }"
    function = program_of(forward("return f(x)", rest=rest)).functions[0]
    assert function.static == {"by": 8}


def test_several_results() -> None:
    rest = "block f(x[b, s, d]) -> [b, s, d], [b, d] { return x * 2, x[s=0] }"
    program = program_of(forward("y, z = f(x)\nreturn y + z", rest=rest))
    assert [r.type.axes for r in program.functions[0].results] == [("b", "s", "d"), ("b", "d")]
    assert codes(forward("y = f(x)\nreturn x", rest=rest)) == ["G209"]
    assert codes(forward("return f(x) + x", rest=rest)) == ["G203"]


def test_conditions_are_decided_when_compiled() -> None:
    body = """
    if heads > 4 { x = x * 2 } else if heads == 4 { x = x * 3 } else { x = x * 5 }
    y = x * 7 if kv == 2 and not (d < 5) else x
    return y
    """
    assert [op.attrs["by"] for op in ops_of(program_of(forward(body)).forward, "scale")] == [3, 7]


def test_a_branch_that_is_not_taken_is_not_read() -> None:
    assert not codes(forward("if heads == 5 { x = nonsense(x) }\nreturn x"))


def test_returns_in_branches() -> None:
    assert [op.kind for op in ops_of(program_of(forward(
        "if heads == 4 { return x * 2 }\nreturn x / 0")).forward)] == [
        "embedding", "scale",
    ]  # fmt: skip


def test_blocks_that_are_not_used_are_checked() -> None:
    assert codes(forward("return x", rest="block f(x[b, s, d]) -> [b, s, d] { return y }")) == [
        "G102"
    ]


def test_faults_are_reported_once_however_often_a_block_is_used() -> None:
    rest = "block f(x[b, s, d], n = 1) -> [b, s, d] { return x + nothing * n }"
    assert codes(forward("return f(x) + f(x, n=2) + f(x, n=3)", rest=rest)) == ["G102"]


def test_no_follow_on_faults() -> None:
    bodies = {
        "q = linear(x) -> [b, s, haeds, hd]\no = sdpa(q, q, q)\nreturn linear(o) -> [b, s, d]": 1,
        "y = gleu(x)\nz = y + x\nw[b, s, ff] = z\nreturn w": 1,
        "y = linear(x) -> [b, ff]\nz = linear(y) as z -> [b, s, d]\nreturn z + x": 1,
        "y = linear(x, init=what(3), bias=7)\nreturn linear(x, tie=y)": 1,
        "y = f(x, 3)\nreturn y * 2": 1,
        "if nothing { x = x * 2 }\nreturn x": 1,
        "repeat nothing { x = x * 2 }\nreturn x": 1,
        "heads = x * 2\nreturn heads": 1,
    }
    rest = "block f(x[b, s, d]) -> [b, s, d] { return x }"
    for body, count in bodies.items():
        assert len(codes(forward(body, rest=rest))) == count, body


def test_faults_of_independent_blocks_are_all_reported() -> None:
    rest = """
    block f(x[b, s, d]) -> [b, s, d] { return x + one }
    block g(x[b, s, d]) -> [b, s, d] { return x + two }
    """
    found = diagnose(forward("x = three(x) -> [b, s, d]\nx = f(x)\nreturn g(x)", rest=rest))
    assert [fault.message for fault in found] == [
        "no value `one`", "no value `two`", "no block or operation `three`",
    ]  # fmt: skip


# ---- imports -------------------------------------------------------------------------------

LIBRARY = """
default linear(bias=true)
block up<d, e>(x[.., d]) -> [.., e] { return inner(x, e=e) }
block inner<d, e>(x[.., d]) -> [.., e] { o = linear(x) -> [.., e]
 return o }
"""


def test_imports_bring_what_they_use() -> None:
    text = forward("return up(x, e=d)", rest='import up from "lib"')
    program = program_of(text, files={"lib": LIBRARY})
    assert names_of(program)[1:] == ["up.inner.o.weight", "up.inner.o.bias"]


def test_defaults_hold_in_their_file_only() -> None:
    body = "y = linear(x) as mine\nreturn up(x, e=d) as theirs"
    text = forward(body, rest='import up from "lib"\ndefault linear(lr=0.5)')
    program = program_of(text, files={"lib": LIBRARY})
    weights = {w.member: w.lr for f in program.functions for w in f.weights if w.leaf == "weight"}
    assert weights == {"o": 1.0, "mine": 0.5, "tok": 1.0}
    assert "mine.bias" not in names_of(program)


def test_defaults_are_overridden_by_the_call() -> None:
    text = forward(
        "return linear(linear(x) as a, bias=false) as c", rest="default linear(bias=true)"
    )
    assert names_of(program_of(text))[1:] == ["a.weight", "a.bias", "c.weight"]


def test_later_defaults_win_and_add() -> None:
    rest = "default linear(bias=true, lr=0.5)\ndefault linear(decay=false)"
    [weight, _] = program_of(forward("return linear(x) as a", rest=rest)).forward.weights[1:]
    assert (weight.lr, weight.decay) == (0.5, False)


def test_a_name_of_a_library_may_be_a_size_of_the_model() -> None:
    """The author of a library cannot know the sizes of the models that use it."""
    library = "block f<e>(x[.., e], heads = 3) -> [.., e] { kv = x * heads\n return kv }"
    text = forward("return f(x)", rest='import f from "lib"')
    assert [op.attrs["by"] for op in ops_of(
        function_of(program_of(text, files={"lib": library}), "F"))] == [3]  # fmt: skip


@pytest.mark.parametrize(
    ("files", "rest", "code"),
    [
        ({}, 'import f from "nowhere"', "G107"),
        ({"lib": "block f<d>(x[.., d]) -> [.., d] { return x }"}, 'import g from "lib"', "G103"),
        ({"lib": 'import f from "lib"'}, 'import f from "lib"', "G106"),
        ({"a": 'import f from "c"', "c": 'import f from "a"'}, 'import f from "a"', "G106"),
    ],
)
def test_imports_that_fail(files: dict[str, str], rest: str, code: str) -> None:
    assert code in codes(forward("return x", rest=rest), files=files)


def test_two_blocks_of_one_name() -> None:
    files = {"lib": "block f<d>(x[.., d]) -> [.., d] { return x }"}
    rest = 'import f from "lib"\nblock f(x[b, s, d]) -> [b, s, d] { return x }'
    assert codes(forward("return f(x)", rest=rest), files=files) == ["G104"]


def test_a_fault_in_a_library_points_there() -> None:
    files = {"lib": "block f<d>(x[.., d]) -> [.., d] {\n  return x + nothing\n}"}
    [fault] = diagnose(forward("return f(x)", rest='import f from "lib"'), files=files)
    assert str(fault.primary.span) == "lib.giant:2"


# ---- Python operations ---------------------------------------------------------------------

EXTERN = """
extern mix<s, d>(x[.., s, d], keep[.., s]: bool = none, rate = 0.5, mode = "fast")
    -> [.., s, d], [.., s] from "my_ops:mix" along s, d
"""


def test_externs() -> None:
    program = program_of(forward("y, z = mix(x, rate=2 * heads)\nreturn y", rest=EXTERN))
    [op] = ops_of(program.forward, "extern")
    assert op.attrs["name"] == "mix"
    assert op.attrs["along"] == ("s", "d")
    assert op.attrs["statics"] == Config("mix", (), (("keep", None), ("rate", 8), ("mode", "fast")))
    assert [r.type.axes for r in op.results] == [("b", "s", "d"), ("b", "s")]
    assert program.externs["mix"].target == "my_ops:mix"


def test_externs_are_checked_like_blocks() -> None:
    for call, code in {
        "mix(tokens)": "G201", "mix(x, 3)": "G232", "mix(x, rate=x)": "G232",
        "mix(x, speed=1)": "G207", "mix()": "G207",
    }.items():  # fmt: skip
        assert codes(forward(f"y, z = {call}\nreturn x", rest=EXTERN)) == [code], call


# ---- experts -------------------------------------------------------------------------------

MOE = """
probs = softmax(linear(x) as router -> [b, s, experts], over=experts)
route = topk(probs, 2, over=experts, renormalize=false)
loss balance = 0.01 * load_balance(probs, route)
y = dispatch(x, route{capacity}) -> [experts, slot, d]
return combine(y, route)
"""


@pytest.mark.parametrize(("text", "capacity"), [("", None), (", capacity=1.25", 1.25)])
def test_experts(text: str, capacity: float | None) -> None:
    program = program_of(forward(MOE.replace("{capacity}", text)))
    by_kind = {op.kind: op for op in ops_of(program.forward)}
    assert str(by_kind["topk"].result.type) == "[b, s]: route"
    assert by_kind["topk"].attrs == {"k": 2, "over": "experts", "renormalize": False}
    assert by_kind["dispatch"].attrs["capacity"] == capacity
    assert by_kind["dispatch"].attrs["experts"] == "experts"
    assert by_kind["combine"].result.type.axes == ("b", "s", "d")
    assert by_kind["combine"].attrs["slot"] == "slot"
    assert by_kind["load_balance"].attrs == {"over": "experts", "k": 2}
    assert program.counts["balance"].kind == "rows"


def test_a_route_is_opaque() -> None:
    start = MOE.replace("{capacity}", "").rsplit("y = ", 1)[0]
    for use in ("route + 1", "gelu(route)", "x + route", "route[s=0]", "linear(route)"):
        assert codes(forward(f"{start}y = {use}\nreturn x")), use


def test_a_model_line_alone_names_the_class() -> None:
    text = spec("forward(x[b, s, d]) -> [b, s, d] { return x * 2 }").replace("tiny", "my_model_2")
    assert program_of(text).forward.symbol == "MyModel2"


@pytest.mark.parametrize("default", ["linear(x=3)", "softmax(over=d)", "linear(wide=3)"])
def test_defaults_are_for_optional_arguments(default: str) -> None:
    assert codes(forward("return x", rest=f"default {default}")) == ["G207"]
