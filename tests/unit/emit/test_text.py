"""How emitted files read: stable, formatted, the user's names, one class a block."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest

from giantdsl.emit import emit_module
from giantdsl.emit.wrap import split_items, wrap
from tests.unit.emit.made import emitted, forward, program_of

ROOT = pathlib.Path(__file__).resolve().parents[3]
MODELS = sorted(p.stem for p in (ROOT / "models").glob("*.giant"))
CASES = ROOT / "tests" / "cases" / "emit"


def source_of(name: str) -> str:
    text = (ROOT / "models" / f"{name}.giant").read_text()
    return emit_module(program_of(text, f"{name}.giant"), source_name=f"{name}.giant").source


@pytest.mark.parametrize("name", MODELS)
def test_models_are_untouched_by_ruff_and_the_same_each_time(
    name: str, tmp_path: pathlib.Path
) -> None:
    text = source_of(name)
    assert text == source_of(name)
    file = tmp_path / f"{name}.py"
    file.write_text(text)
    ruff = [sys.executable, "-m", "ruff"]
    width = ["--line-length", "100", "--isolated"]
    subprocess.run([*ruff, "format", "--check", *width, file], check=True, capture_output=True)
    rules = ["--select", "E,F,I,B,UP,RUF"]
    subprocess.run([*ruff, "check", *width, *rules, file], check=True, capture_output=True)


@pytest.mark.parametrize("name", ["gpt2", "t5", "mixtral", "alternating"])
def test_golden(name: str, request: pytest.FixtureRequest) -> None:
    golden = CASES / f"{name}.py.expected"
    text = source_of(name)
    if request.config.getoption("--update-golden", default=False):
        golden.parent.mkdir(parents=True, exist_ok=True)
        golden.write_text(text)
    assert text == golden.read_text(), f"read the diff, then --update-golden: {golden}"


def test_only_torch_and_the_standard_library_are_imported() -> None:
    for name in MODELS:
        lines = [x for x in source_of(name).splitlines() if x.startswith(("import ", "from "))]
        allowed = {"torch", "math", "functools", "typing"} | (
            {"my_ops"} if name == "custom" else set()
        )
        assert {line.split()[1].split(".")[0] for line in lines} <= allowed


def test_a_loop_of_a_thousand_layers_is_not_unrolled() -> None:
    def text(layers: int) -> str:
        spec = (
            (ROOT / "models" / "gpt2.giant")
            .read_text()
            .replace("layers = 12", f"layers = {layers}")
        )
        return emit_module(program_of(spec), source_name="gpt2.giant").source

    assert len(text(200).splitlines()) == len(text(12).splitlines())


def test_uses_of_a_block_share_one_class() -> None:
    made = emit_module(
        program_of((ROOT / "models" / "t5.giant").read_text()), source_name="t5.giant"
    )
    assert made.classes == {
        "attend": ("Attend",), "mlp": ("Mlp",), "encoder": ("Encoder",), "decoder": ("Decoder",),
        "t5": ("T5",),
    }  # fmt: skip
    assert "Attend(causal=True)" in made.source
    alternating = source_of("alternating")
    assert "Decoder(window=4096) if i % 2 == 0 else Decoder(window=None)" in alternating


def test_a_block_with_a_condition_becomes_two_classes() -> None:
    text = source_of("custom")
    assert "Layer() if i == 0 else Layer2() for i in range(4)" in text
    assert text.count("ema(x") == 1


def test_every_line_of_a_class_knows_its_place_in_the_spec() -> None:
    body = "  y = relu(x)\n  z = tanh(y)\n  return y + z"
    made = emitted(forward("x[b, s, d]", "[b, s, d]", body))
    lines = made.source.splitlines()
    for word in ("F.relu", "torch.tanh"):
        at = next(i for i, line in enumerate(lines, 1) if word in line)
        assert word.split(".")[1] in made.line_map[at].source.line_text(made.line_map[at].line)


def test_awkward_names_stay_usable() -> None:
    body = "  class_ = relu(lambda)\n  del = class_ + x_prime\n  return del"
    text = emitted(forward("lambda[b, s, d], x_prime[b, s, d]", "[b, s, d]", body)).source
    compile(text, "x.py", "exec")
    assert "lambda_: Tensor" in text


def test_wrap_opens_the_last_bracket_then_each_item() -> None:
    long = "x = call(" + ", ".join(f"argument_{i}" for i in range(7)) + ")"
    assert wrap("    " + long) == ["    " + long] if len(long) < 97 else True
    wide = "y = call(" + ", ".join(f"argument_{i}" for i in range(9)) + ")"
    lines = wrap(wide)
    assert (
        lines[0] == "y = call(" and lines[-1] == ")" and all(x.endswith(",") for x in lines[1:-1])
    )
    assert split_items('a, f(b, c), "d, e"') == ["a", "f(b, c)", '"d, e"']
