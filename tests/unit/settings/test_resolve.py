"""Settings: file, then profiles, then the command line; every default filled in."""

from __future__ import annotations

import pytest

from giantdsl.attrs import Config
from giantdsl.diagnostics import Severity
from giantdsl.driver import Compiled, compile_spec
from giantdsl.errors import SettingsError, SpecError
from giantdsl.source import SourceFile

SPEC = """model m

dims { b: batch;  s: seq = 8;  d = 8 }

forward(x[b, s, d]) -> [b, s, d] {
  return x
}

train {
  data = "a/*.bin";  batch = 6;  microbatch = 4;  tokens = 300B
  optimizer = adamw(decay=0.1);  lr = cosine(peak=3e-4, warmup=10)
}

profile small { train.steps = 20;  train.lr.peak = 1e-3;  dims.d = 4 }
profile smaller { train.lr.peak = 2e-3;  dims.s = 2 }
"""


def compiled(*overrides: str, profiles: tuple[str, ...] = (), text: str = SPEC) -> Compiled:
    return compile_spec(SourceFile("m.giant", text), overrides=overrides, profiles=profiles)


def train(*overrides: str, profiles: tuple[str, ...] = (), text: str = SPEC):  # type: ignore[no-untyped-def]
    settings = compiled(*overrides, profiles=profiles, text=text).settings.train
    assert settings is not None
    return settings


def test_calls_are_complete_so_that_no_reader_knows_a_default() -> None:
    found = train()
    assert found.optimizer == Config(
        "adamw", (), (("betas", (0.9, 0.999)), ("eps", 1e-8), ("decay", 0.1))
    )
    assert found.lr == Config("cosine", (), (("peak", 3e-4), ("warmup", 10), ("floor", 0.0)))
    assert found.data is not None and found.data.name == "megatron"
    assert found.data.get("files") == ("a/*.bin",)
    assert (found.tokens, found.steps, found.clip, found.precision) == (
        300 * 10**9,
        None,
        0.0,
        "float32",
    )
    assert found.log == ("console",) and found.seed == 0 and not found.compile


def test_later_layers_win_and_reach_into_calls() -> None:
    found = train(profiles=("small",))
    assert (found.steps, found.tokens) == (20, None)
    assert found.lr.get("peak") == 1e-3 and found.lr.get("warmup") == 10
    found = train("train.lr.peak=4e-3", "train.epochs=2", profiles=("small", "smaller"))
    assert found.lr.get("peak") == 4e-3 and (found.steps, found.epochs) == (None, 2.0)
    assert train("train.lr=0.5", profiles=("small",)).lr == Config(
        "constant", (), (("peak", 0.5), ("warmup", 0))
    )
    program = compiled(profiles=("small", "smaller")).program
    assert (program.axes["d"].size, program.axes["s"].size) == (4, 2)


def test_shorthands() -> None:
    assert train('train.data="a.txt"').data.name == "text"
    assert train('train.tokenizer="t.json"').tokenizer == Config("file", (), (("path", "t.json"),))
    assert train('train.tokenizer="gpt2"').tokenizer == Config("hf", (), (("name", "gpt2"),))
    assert train("train.log=[console, tensorboard]").log == ("console", "tensorboard")
    assert train("train.save=every(5, keep=2)").save == Config(
        "every", (), (("steps", 5), ("keep", 2), ("async", True))
    )
    assert train("train.steps=1e3").steps == 1000
    blended = train('train.data=blend(a="a.bin", b=text("b.txt"), ratio=[1, 3])').data
    assert blended.get("a").name == "megatron" and blended.get("ratio") == (1.0, 3.0)


def test_data_ranks_have_the_same_rows_their_last_microbatch_may_be_smaller() -> None:
    assert train().batch == 6
    (warning,) = compiled("parallel.dp=2").warnings
    assert warning.code == "G605" and warning.severity is Severity.WARNING
    with pytest.raises(SpecError) as error:
        compiled("parallel.dp=4")
    assert error.value.diagnostics[0].code == "G605"


WRONG = {
    "train.stpes=3": ("G601", "did you mean `steps`"),
    "trian.steps=3": ("G601", "did you mean `train`"),
    "train.optimizer.decya=1": ("G604", "did you mean `decay`"),
    "train.seed.x=1": ("G601", "has no `x` to set"),
    "train.batch=0": ("G603", "at least 1"),
    "train.batch=true": ("G603", "this is true"),
    "train.precision=half": ("G603", "float32, bf16 or float64"),
    "train.lr=cosine(peak=1e-4, floor=1)": ("G603", "`floor` is at most `peak`"),
    "train.data=blend(a=3, ratio=[1])": ("G603", "this is 3"),
    "parallel.zero=4": ("G603", "from 0 to 3"),
    "parallel.order=[pp, dp]": ("G603", "this is [pp, dp]"),
    "parallel.recompute=[nothing]": ("G407", "no block `nothing`"),
    "dims.q=3": ("G601", "`dims` has no `q`"),
}


@pytest.mark.parametrize("override", WRONG)
def test_a_wrong_override_points_at_itself(override: str) -> None:
    code, message = WRONG[override]
    with pytest.raises(SpecError) as error:
        compiled(override)
    found = error.value.diagnostics[0]
    assert found.code == code and message in str(error.value)
    assert found.primary.span.source.name == "command line"


def test_what_is_no_override_or_profile() -> None:
    with pytest.raises(SettingsError, match="key=value, not `train`"):
        compiled("train")
    with pytest.raises(SettingsError, match="no profile `big`; it has: small, smaller"):
        compiled(profiles=("big",))
