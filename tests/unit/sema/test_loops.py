"""`repeat`: variants, losses, what is carried, what is refused; limits."""

from __future__ import annotations

import time

import pytest

from giantdsl.ir.nodes import Repeat, StageMark
from giantdsl.ir.parameters import count_parameters

from .helpers import (
    ROOT,
    calls_of,
    codes,
    diagnose,
    forward,
    function_of,
    loops_of,
    names_of,
    ops_of,
    program_of,
    spec,
)

LAYER = """
block layer(x[b, s, d], window = none, scale = 1) -> [b, s, d] {
  q, k, v = linear(x) -> [b, s, heads, hd], [b, s, heads, hd], [b, s, heads, hd]
  return x + (linear(sdpa(q, k, v, window=window)) as out -> [b, s, d]) * scale
}
"""


def loop(body: str, rest: str = "") -> Repeat:
    return loops_of(program_of(forward(body, rest=rest)).forward)[0]


# ---- variants ------------------------------------------------------------------------------


def test_alternating_layers_are_two_variants() -> None:
    program = program_of((ROOT / "models" / "alternating.giant").read_text(encoding="utf-8"))
    [layers] = loops_of(program.forward)
    assert layers.count == 26
    assert layers.pattern == (0, 1) * 13
    decoders = [f for f in program.functions if f.name == "decoder"]
    assert [f.static["window"] for f in decoders] == [4096, None]


def test_a_body_that_does_not_use_the_index_is_read_once() -> None:
    found = loop("repeat i in layers { x = layer(x) }\nreturn x", LAYER)
    assert (len(found.bodies), found.pattern, found.index) == (1, (0, 0, 0), "i")


def test_equal_iterations_share_a_variant() -> None:
    found = loop("repeat i in 6 { x = layer(x, scale=2 if i > 3 else 1) }\nreturn x", LAYER)
    assert found.pattern == (0, 0, 0, 0, 1, 1)


def test_every_iteration_of_its_own() -> None:
    found = loop("repeat i in 4 { x = x * (i + 1) }\nreturn x")
    assert found.pattern == (0, 1, 2, 3)
    factors = [body.statements[0].attrs["by"] for body in found.bodies]  # type: ignore[union-attr]
    assert factors == [1, 2, 3, 4]


def test_the_index_reaches_inner_loops() -> None:
    body = "repeat i in 2 { repeat j in 2 { x = x * (2 * i + j + 1) } }\nreturn x"
    outer = loop(body)
    assert outer.pattern == (0, 1)
    inner = [b.statements[0] for b in outer.bodies]
    assert all(isinstance(found, Repeat) and found.pattern == (0, 1) for found in inner)


def test_layers_may_differ_in_weights() -> None:
    body = "repeat i in 3 { x = linear(x, bias=i == 0) as l }\nreturn x"
    program = program_of(forward(body))
    assert loops_of(program.forward)[0].pattern == (0, 1, 1)
    assert names_of(program)[1:] == ["l.0.weight", "l.0.bias", "l.1.weight", "l.2.weight"]
    assert count_parameters(program) == 61 * 32 + 3 * 32 * 32 + 32


# ---- what a loop carries -------------------------------------------------------------------


def test_what_is_reassigned_is_carried() -> None:
    found = loop("y = x * 2\nrepeat 3 { x = x + y\n z = x * 2\n y = z }\nreturn x + y")
    assert [v.name for v in found.results] == ["x", "y"]
    assert [v.type.axes for v in found.bodies[0].params] == [("b", "s", "d")] * 2


def test_what_is_only_read_is_not_carried() -> None:
    found = loop("y = x * 2\nrepeat 3 { x = x + y }\nreturn x")
    assert [v.name for v in found.results] == ["x"]


def test_names_of_a_body_end_with_it() -> None:
    assert codes(forward("repeat 3 { y = x * 2\n x = y }\nreturn y")) == ["G102"]
    assert codes(forward("repeat i in 3 { x = x * i }\nreturn x * i")) == ["G102"]


def test_compile_time_values_are_not_carried() -> None:
    body = "n = 1\nrepeat 3 { n = n * 2\n x = x * n }\nreturn x"
    assert codes(forward(body)) == ["G233"]
    assert codes(forward("m = none\nrepeat 3 { m = x }\nreturn x")) == ["G233"]


def test_compile_time_values_of_a_body_are_fine() -> None:
    found = loop("repeat i in 2 { n = i + 3\n x = x * n }\nreturn x")
    assert len(found.bodies) == 2


def test_a_carried_value_keeps_its_axes_and_type() -> None:
    assert codes(forward("y = x\nrepeat 2 { y = linear(y) as up -> [b, s, ff] }\nreturn x")) == [
        "G210"
    ]
    assert codes(forward("y = keep\nrepeat 2 { y = labels }\nreturn x")) == ["G210"]


def test_a_return_ends_no_loop() -> None:
    assert codes(forward("repeat 2 { return x }\nreturn x")) == ["G211"]


# ---- losses --------------------------------------------------------------------------------


def test_losses_of_a_loop_are_added_up() -> None:
    body = "repeat 3 { x = linear(x) as l\n loss size = mean(x, over=[b, s, d]) }\nreturn x"
    program = program_of(forward(body))
    [found] = loops_of(program.forward)
    assert [name for name, _ in found.losses] == ["size"]
    assert [name for name, _ in found.bodies[0].losses] == ["size"]
    assert [name for name, _ in program.forward.losses] == ["size"]
    assert program.forward.losses[0][1] is found.losses[0][1]


def test_losses_of_blocks_come_along() -> None:
    rest = """
    block noisy(x[b, s, d]) -> [b, s, d] {
      loss size = mean(x, over=[b, s, d])
      return x * 2
    }
    """
    body = "x = noisy(x)\nrepeat 2 { x = noisy(x) }\nloss size = mean(x, over=[b, s, d])\nreturn x"
    program = program_of(forward(body, rest=rest))
    assert [len(call.losses) for call in calls_of(program.forward)] == [1, 1]
    assert [name for name, _ in program.forward.losses] == ["size"]
    assert len(ops_of(program.forward, "add")) == 2


def test_variants_may_differ_in_losses() -> None:
    body = """
    repeat i in 3 {
      x = linear(x) as l
      if i == 1 { loss middle = mean(x, over=[b, s, d]) }
    }
    return x
    """
    [found] = loops_of(program_of(forward(body)).forward)
    assert found.pattern == (0, 1, 0)
    assert [len(body.losses) for body in found.bodies] == [0, 1]
    assert [name for name, _ in found.losses] == ["middle"]


# ---- draws and sites -----------------------------------------------------------------------


def test_what_draws_is_numbered_on_the_way_down() -> None:
    rest = """
    block noisy(x[b, s, d]) -> [b, s, d] { return dropout(dropout(x, 0.1) * 2, 0.2) }
    block calm(x[b, s, d]) -> [b, s, d] { return dropout(x, 0) * 2 }
    """
    body = "x = calm(dropout(x, 0.1))\nrepeat 2 { x = noisy(x) }\nreturn noisy(x) as end"
    program = program_of(forward(body, rest=rest))
    noisy, calm = function_of(program, "Noisy"), function_of(program, "Calm")
    assert (noisy.draws, calm.draws, program.forward.draws) == (True, False, True)
    assert [op.site for op in ops_of(noisy, "dropout")] == [1, 2]
    assert not ops_of(calm, "dropout")
    assert [call.site for call in calls_of(program.forward)] == [None, 2, 4]
    assert loops_of(program.forward)[0].site == 3


def test_attention_draws_only_with_dropout() -> None:
    body = """
    q = linear(x) -> [b, s, heads, hd]
    a = sdpa(q, q, q, dropout=0.1)
    c = sdpa(q, q, q)
    return x
    """
    assert [op.site for op in ops_of(program_of(forward(body)).forward, "sdpa")] == [1, None]


def test_what_draws_has_the_batch_in_front() -> None:
    body = """
    y[d, s, b] = x
    y = dropout(y, 0.1)
    q = linear(x) -> [heads, b, s, experts, hd]
    o = sdpa(q, q, q, dropout=0.1)
    return x
    """
    program = program_of(forward(body))
    [drop] = ops_of(program.forward, "dropout")
    assert drop.result.type.axes == ("b", "d", "s")
    [attend] = ops_of(program.forward, "sdpa")
    assert [v.type.axes[0] for v in attend.inputs] == ["b", "b", "b"]
    assert program.forward.results[0].type.axes == ("b", "s", "d")


def test_nothing_is_drawn_without_a_batch() -> None:
    assert codes(forward("return x + dropout(param() as p -> [s, d], 0.1)")) == ["G228"]
    assert not codes(forward("return x + dropout(param() as p -> [s, d], 0)"))


# ---- stages --------------------------------------------------------------------------------


def test_stage_marks() -> None:
    body = "repeat 4 { x = linear(x) as l\n stage every 2 }\nstage\nreturn x"
    program = program_of(forward(body))
    assert loops_of(program.forward)[0].every == 2
    assert sum(isinstance(s, StageMark) for s in program.forward.statements) == 1
    assert codes(forward("return x", rest=LAYER.replace("  return", "  stage\n  return"))) == [
        "G401"
    ]
    assert codes(forward("stage every 2\nreturn x")) == ["G406"]
    assert codes(forward("repeat 4 { x = x * 2\n stage every 0 }\nreturn x")) == ["G406"]


# ---- limits --------------------------------------------------------------------------------


def test_a_thousand_layers_take_no_time() -> None:
    text = forward("repeat i in 1000 { x = layer(x, window=4 if i % 2 == 0 else none) }\nreturn x",
                   rest=LAYER)  # fmt: skip
    start = time.process_time()
    program = program_of(text)
    assert time.process_time() - start < 10
    assert count_parameters(program) == 61 * 32 + 1000 * 4 * 32 * 32


@pytest.mark.parametrize("count", ["1e12", "100_001", "-1", "2 ** 80"])
@pytest.mark.parametrize("index", ["", "i in "])
def test_loops_are_bounded(count: str, index: str) -> None:
    start = time.process_time()
    assert codes(forward(f"repeat {index}{count} {{ x = linear(x) as l }}\nreturn x")) == ["G215"]
    assert time.process_time() - start < 5


def test_reading_is_bounded_when_loops_are_followed() -> None:
    texts = [
        forward("repeat i in 100000 { x = x * i }\nreturn x"),
        forward("repeat i in 1000 { repeat j in 1000 { x = x * (i + j) } }\nreturn x"),
        forward("repeat i in 20000 { x = layer(x, scale=i) }\nreturn x", rest=LAYER),
        forward("return a25(x)", rest=_doubling(25)),
    ]
    for text in texts:
        start = time.process_time()
        assert codes(text) == ["G215"]
        assert time.process_time() - start < 20


def _doubling(depth: int) -> str:
    """Blocks that use the one below twice, each time in another way."""
    lines = ["block a0(x[b, s, d], n = 1) -> [b, s, d] { return x * n }"]
    lines += [
        f"block a{i}(x[b, s, d], n = 1) -> [b, s, d] {{ return a{i - 1}(x, n=2 * n) + "
        f"a{i - 1}(x, n=2 * n + 1) as other }}"
        for i in range(1, depth + 1)
    ]
    return "\n".join(lines)


def test_loops_in_loops_multiply() -> None:
    [fault] = diagnose(forward("repeat 1000 { repeat 1000 { x = linear(x) as l } }\nreturn x"))
    assert (fault.code, fault.message) == ("G215", "1,000,001 weights are too many")
    assert not codes(
        forward("repeat 100000 shared { repeat 100000 shared { x = linear(x) } }\nreturn x")
    )


def test_long_files_are_fine() -> None:
    lines = "\n".join(f"y{i} = x * {i}" for i in range(1, 12_000))
    assert not codes(forward(f"{lines}\nreturn x"))


def test_blocks_in_blocks() -> None:
    def chain(depth: int) -> str:
        lines = ["block a0(x[b, s, d]) -> [b, s, d] { return linear(x) as l }"]
        lines += [
            f"block a{i}(x[b, s, d]) -> [b, s, d] {{ return a{i - 1}(x) }}"
            for i in range(1, depth + 1)
        ]
        return forward(f"return a{depth}(x)", rest="\n".join(lines))

    assert len(program_of(chain(60)).functions) == 62
    [fault] = diagnose(chain(200))
    assert (fault.code, fault.message) == ("G229", "blocks are used in blocks more than 64 deep")


def test_blocks_cannot_use_themselves() -> None:
    rest = "block f(x[b, s, d]) -> [b, s, d] { return f(x) }"
    [fault] = diagnose(forward("return f(x)", rest=rest))
    assert (fault.code, fault.message) == ("G229", "block `f` uses itself")


def test_a_file_without_a_model() -> None:
    assert codes("") == ["G108"]
    assert codes("model m") == ["G108"]
    assert codes(spec("")) == ["G108"]
