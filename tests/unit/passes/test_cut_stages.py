"""Stage programs: what crosses a cut, and the same numbers as the whole model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from giantdsl.attrs import Config
from giantdsl.emit import emit_module
from giantdsl.ir.nodes import Program, Repeat
from giantdsl.ir.parameters import iter_parameters
from giantdsl.ir.text import format_program, parse_program
from giantdsl.ir.verify import verify
from giantdsl.passes.stage_table import stage_table
from giantdsl.passes.stages import count_stages
from giantdsl.settings.values import ParallelSettings
from tests.unit.emit.made import program_of
from tests.unit.passes import staged

_OPS = Path(__file__).resolve().parents[2] / "ops"

_CUTS = {
    "gpt2": [("dims.layers=5",), (2, 1, 2), (0, 3, 2, 0), (5, 0)],
    "llama3": [("dims.layers=4",), (1, 1, 1, 1)],
    "bert": [("dims.layers=3",), (1, 2), (0, 1, 1, 1)],
    "vit": [("dims.layers=4",), (1, 3), (0, 4)],
    "t5": [("dims.layers=3",), (3, 3), (1, 2, 1, 2), (2, 2, 2), (0, 3, 3, 0)],
    "mixtral": [("dims.layers=4",), (1, 1, 2), (0, 2, 2)],
    "alternating": [("dims.layers=6",), (1, 2, 3), (3, 3), (4, 1, 1)],
    "custom": [("dims.layers=6",), (1, 1, 1, 2), (2, 2, 1), (3, 1, 1), (0, 5)],
    "demo": [("dims.s=12", "dims.layers=3", "dims.vocab=50", "dims.drop=0.1"), (1, 1, 1)],
}
_CASES = [(model, counts) for model, (_, *cuts) in _CUTS.items() for counts in cuts]


@pytest.mark.parametrize(("model", "counts"), _CASES)
def test_same_losses_and_gradients(
    model: str, counts: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(_OPS))
    program, parallel = staged.compiled(model, *_CUTS[model][0])
    inputs = staged.batch(program)
    stages = staged.cut(program, parallel, stages=counts)
    assert len(stages) == len(counts)
    staged.assert_equal(staged.run_whole(program, inputs), staged.run_stages(stages, inputs))


@pytest.mark.parametrize(("model", "counts"), _CASES)
def test_stage_programs_are_text_and_hold_every_parameter(
    model: str, counts: tuple[int, ...]
) -> None:
    program, parallel = staged.compiled(model, *_CUTS[model][0])
    held: set[str] = set()
    for stage in staged.cut(program, parallel, stages=counts):
        text = format_program(stage.program)
        again = parse_program(text)
        verify(again)
        assert format_program(again) == text
        names = [p.name for p in iter_parameters(stage.program)]
        assert [p.name for p in iter_parameters(again)] == names
        assert len(set(names)) == len(names)
        held.update(names)
    assert held == {p.name for p in iter_parameters(program)}


# ---- the table -----------------------------------------------------------------------------

T5_IN_FOUR = """\
stage 0: shared_emb, enc_bias, encoder 0..2
  reads       tokens, keep
  recomputes  enc_bias
  ties        shared_emb.weight, enc_bias.weight
  sends       x
stage 1: enc_bias, encoder 3..5, enc_norm
  reads       keep, inputs
  receives    x
  recomputes  enc_bias
  ties        shared_emb.weight, enc_bias.weight
  sends       enc, y_1
stage 2: dec_bias, decoder 0..2
  reads       keep
  receives    enc, y_1
  recomputes  dec_bias
  ties        dec_bias.weight
  sends       enc, y_2
stage 3: dec_bias, decoder 3..5, dec_norm
  reads       keep, labels
  receives    enc, y_2
  recomputes  dec_bias
  ties        shared_emb.weight, dec_bias.weight
  returns     logits
  losses      lm"""


def test_t5_in_four_stages() -> None:
    """The table of language.md 2.12."""
    program, parallel = staged.compiled("t5", "dims.layers=6")
    stages = staged.cut(program, parallel, pp=4, stages=(3, 3, 3, 3))
    assert stage_table(stages) == T5_IN_FOUR
    assert [[c.grad for c in stage.receives] for stage in stages] == [
        [],
        [True],
        [True, True],
        [True, True],
    ]


# ---- marks, counts, auto -------------------------------------------------------------------


def _layers(program: Program, parallel: ParallelSettings, **changes: object) -> list[str]:
    return [stage.units for stage in staged.cut(program, parallel, **changes)]


def test_marks_are_the_default_and_an_explicit_auto_overrides_them() -> None:
    program, parallel = staged.compiled("alternating", "dims.layers=16")
    marked = _layers(program, parallel, pp=3)
    assert marked == ["tok, decoder 0..6", "decoder 7..13", "decoder 14..15, norm"]
    auto = _layers(program, parallel, pp=3, stages=Config("auto"))
    assert auto == ["tok, decoder 0..4", "decoder 5..10", "decoder 11..15, norm"]
    assert _layers(program, parallel, pp=3, stages=(1, 1, 14))[0] == "tok, decoder 0"


def test_one_rank_is_one_stage_unless_the_plan_says_otherwise() -> None:
    program, parallel = staged.compiled("alternating", "dims.layers=16")
    assert len(_layers(program, parallel)) == 1
    assert len(_layers(program, parallel, stages=(8, 8))) == 2
    interleaved = Config("interleaved", (), (("chunks", 4),))
    assert len(_layers(program, parallel, schedule=interleaved, stages=Config("auto"))) == 4
    assert len(_layers(program, parallel, schedule=interleaved)) == 3


@pytest.mark.parametrize(
    ("value", "stages", "count"),
    [("none", None, 3), ("auto", Config("auto", (), (("by", "time"),)), 2), ("[8, 8]", (8, 8), 2)],
)
def test_what_the_spec_says_of_stages(value: str, stages: object, count: int) -> None:
    overrides = ("dims.layers=16", f"parallel.stages={value}")
    program, parallel = staged.compiled("alternating", *overrides)
    assert parallel.stages == stages
    assert count_stages(program, replace(parallel, pp=2)) == count


def test_chunks_multiply_the_stages() -> None:
    program, parallel = staged.compiled("mixtral", "dims.layers=8")
    interleaved = Config("interleaved", (), (("chunks", 2),))
    stages = _layers(program, parallel, pp=4, schedule=interleaved)
    assert [name.replace(", norm, head", "") for name in stages] == [
        "tok, decoder 0",
        *(f"decoder {i}" for i in range(1, 8)),
    ]


def test_balance_counts_the_head_with_the_last_layer() -> None:
    program, parallel = staged.compiled("gpt2", "dims.layers=8", "dims.vocab=4000")
    by_flops = Config("auto", (), (("by", "flops"),))
    by_params = Config("auto", (), (("by", "params"),))
    last = _layers(program, parallel, pp=2, stages=by_flops)[1]
    assert last == "decoder 6..7, norm"
    # The table is owned by the first stage, where it costs nothing to run.
    assert _layers(program, parallel, pp=2, stages=by_params)[0] == "tok, pos, decoder 0"


# ---- values, losses, ties that the models do not have ---------------------------------------

_HEAD = """
model made
dims { b: batch;  s: seq = 5;  d = 8;  vocab = 11;  layers = 4 }
block embed(tokens[b, s]: vocab) -> [b, s, d] {
  return embedding(tokens) as table -> [b, s, d]
}
block layer(x[b, s, d], y[b, s, d]) -> [b, s, d] {
  h = rmsnorm(x) as norm
  loss size = mse(h, y)
  return dropout(linear(h) as map -> [b, s, d], 0.3) + x
}
"""


def _check(text: str, counts: tuple[int, ...]) -> list[str]:
    """Equal to the whole; returns the sources of the stages."""
    program = program_of(_HEAD + text)
    inputs = staged.batch(program)
    stages = staged.cut(program, ParallelSettings(), stages=counts)
    staged.assert_equal(staged.run_whole(program, inputs), staged.run_stages(stages, inputs))
    for stage in stages:
        again = parse_program(format_program(stage.program))
        verify(again)
    return [
        emit_module(stage.program, source_name="m.giant", runnable=False).source for stage in stages
    ]


def test_a_weight_inside_a_block_is_held_under_its_path() -> None:
    sources = _check(
        """
        forward(tokens[b, s]: vocab, labels[b, s]: vocab) -> [b, s, vocab] {
          x = embed(tokens)
          first = x
          repeat layers { x = layer(x, first) }
          logits = linear(x, tie=embed.table) -> [b, s, vocab]
          loss lm = cross_entropy(logits, labels)
          return logits
        }
        """,
        (1, 2, 1),
    )
    held = (
        'nn.ModuleDict({"table": nn.ParameterDict({"weight": nn.Parameter(torch.empty(11, 8))})})'
    )
    flat = " ".join(sources[2].replace("\n", " ").split())
    assert f"self.embed = {held}" in flat.replace("( {", "({").replace("} )", "})")
    assert "self.embed.table.weight" in sources[2]
    assert "self.embed" not in sources[1]
    # `x` is the name of others, too: its second name is not.
    assert "first: Tensor" in sources[1] and "x_0: Tensor" in sources[1]


def test_losses_in_loops_and_scaled_sums_stay_where_they_are() -> None:
    sources = _check(
        """
        forward(tokens[b, s]: vocab, labels[b, s]: vocab) -> [b, s, vocab] {
          x = embed(tokens)
          first = x
          repeat layers { x = layer(x, first) }
          early = linear(x) as early -> [b, s, vocab]
          aux = cross_entropy(early, labels)
          repeat i in layers { x = layer(x, first) as after }
          logits = linear(x) as head -> [b, s, vocab]
          loss lm = cross_entropy(logits, labels) - 0.25 * aux
          loss size = mse(x, first)
          return logits
        }
        """,
        (2, 3, 3),
    )
    assert 'self.losses["lm"]' in sources[1] and 'self.losses["lm"]' in sources[2]
    assert all('self.losses["size"]' in source for source in sources)
    assert "aux" not in sources[2]


def test_a_scaled_term_that_is_returned_too_is_sent() -> None:
    _check(
        """
        forward(tokens[b, s]: vocab, labels[b, s]: vocab) -> [b, s, vocab], [] {
          x = embed(tokens)
          first = x
          aux = mse(x, first * 0.5)
          repeat layers { x = layer(x, first) }
          logits = linear(x) as head -> [b, s, vocab]
          total = mse(x, first) + 0.5 * aux
          loss lm = total
          return logits, total
        }
        """,
        (1, 1, 2),
    )


def test_parts_of_the_input_are_made_again_and_values_from_it_are_sent() -> None:
    program = program_of(
        _HEAD
        + """
        forward(tokens[b, s]: vocab, marks[b, s]) -> [b, s, d] {
          x = embed(tokens)
          twice = marks * 2.0
          seen = sigmoid(linear(twice) as gate -> [b, s, d]) if false else x
          repeat i in layers {
            x = layer(x, x)
            x = x * twice if i == 2 else x
          }
          return x * seen
        }
        """
    )
    stages = staged.cut(program, ParallelSettings(), stages=(1, 1, 2))
    assert [stage.inputs for stage in stages] == [("tokens",), (), ("marks",)]
    assert [stage.recomputed for stage in stages] == [(), (), ()]
    assert stages[0].makes == ("seen", "x_0") or len(stages[0].makes) == 2
    inputs = staged.batch(program)
    staged.assert_equal(staged.run_whole(program, inputs), staged.run_stages(stages, inputs))


def test_conditions_on_the_index_and_bare_parameters_in_a_cut_loop() -> None:
    sources = _check(
        """
        forward(tokens[b, s]: vocab, labels[b, s]: vocab) -> [b, s, vocab] {
          x = embed(tokens)
          first = x
          repeat i in 7 {
            x = layer(x, first)
            x = x * (param(init=ones) as gain -> [d])
            if i % 3 == 1 { x = x + linear(x) as extra -> [b, s, d] }
          }
          logits = linear(x) as head -> [b, s, vocab]
          loss lm = cross_entropy(logits, labels)
          return logits
        }
        """,
        (1, 4, 2),
    )
    assert "for i in range(1, 5):" in sources[1]
    assert "self.layer[str(i)]" in sources[1]
    assert (
        "nn.ParameterDict({str(i): nn.Parameter(torch.empty(8)) for i in range(1, 5)})"
        in (sources[1])
    )


def test_a_shared_loop_is_tied_over_its_stages() -> None:
    program = program_of(
        _HEAD
        + """
        forward(tokens[b, s]: vocab) -> [b, s, d] {
          x = embed(tokens)
          repeat layers shared { x = layer(x, x) }
          return x
        }
        """
    )
    stages = staged.cut(program, ParallelSettings(), stages=(1, 3))
    assert stages[1].tied == ("layer.norm.weight", "layer.map.weight")
    loops = [s for s in stages[1].program.forward.statements if isinstance(s, Repeat)]
    assert (loops[0].first, loops[0].count) == (1, 3)
    inputs = staged.batch(program)
    staged.assert_equal(staged.run_whole(program, inputs), staged.run_stages(stages, inputs))


def test_a_layer_that_nothing_reads_stays_where_it_stands() -> None:
    program = program_of(
        _HEAD
        + """
        forward(tokens[b, s]: vocab) -> [b, s, d] {
          x = embed(tokens)
          spare = param(init=ones) -> [d]
          repeat layers { x = layer(x, x) }
          return x
        }
        """
    )
    stages = staged.cut(program, ParallelSettings(), stages=(2, 2))
    assert "spare" in [p.name for p in iter_parameters(stages[0].program)]
    assert "spare" not in [p.name for p in iter_parameters(stages[1].program)]


def test_without_noise_a_stage_draws_its_own() -> None:
    program, parallel = staged.compiled("gpt2", "dims.layers=3")
    stage = staged.cut(program, parallel, stages=(1, 2))[1]
    module = staged.module_of(stage.program)
    module(**{stage.receives[0].name: torch.zeros(2, 32, 64, dtype=torch.float64)})
