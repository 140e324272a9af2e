"""The command line as a user meets it: outputs, exit codes, one line for a mistake."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from giantdsl.cli.commands import COMMANDS, NOT_BUILT
from giantdsl.cli.main import main
from giantdsl.resources import model_path

GPT2 = str(model_path("gpt2"))
SMALL = ["dims.d=32", "dims.heads=4", "dims.layers=2", "dims.s=32"]


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(list(arguments))
    out, err = capsys.readouterr()
    return code, out, err


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def trained(here: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    (here / "a.txt").write_text("the quick brown fox jumps over the lazy dog. " * 60)
    assert run(capsys, "new", "tiny")[0] == 0
    small = ["dims.d=16", "dims.heads=2", "dims.layers=1", "dims.s=16", 'train.data="a.txt"']
    arguments = ["train.steps=3", "train.batch=2", "train.eval=none", "--quiet", "--run-dir", "r"]
    assert main(["train", "tiny.giant", *small, *arguments]) == 0
    capsys.readouterr()
    return here


def test_check_says_how_large_the_model_is(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "check", GPT2)
    assert code == 0 and "gpt2: 124,439,808 parameters" in out + err and "2 stages" in out + err
    code, out, _ = run(capsys, "check", GPT2, "--json")
    found = json.loads(out)
    assert code == 0 and 124_439_808 in found.values()


def test_a_wrong_spec_is_exit_code_2_with_the_diagnostic(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "m.giant").write_text("model m\ndims { b: batch }\nforward(x[q]) -> [b] { return x }\n")
    code, out, err = run(capsys, "check", "m.giant")
    assert code == 2 and out == "" and "error[G101]: no axis `q`" in err and "m.giant:3:11" in err
    code, out, _ = run(capsys, "check", "m.giant", "--json")
    assert code == 2 and json.loads(out)["diagnostics"][0]["code"] == "G101"


MISUSE = {
    "no such command": (["chekc", "x"], "did you mean `check`"),
    "nothing given": (["check"], "SPEC"),
    "no such file": (["check", "none.giant"], "none.giant"),
    "unknown flag": (["check", GPT2, "--jsn"], "--jsn"),
    "unknown setting": (["check", GPT2, "train.stpes=3"], "did you mean `steps`"),
    "unknown size": (["check", GPT2, "dims.layrs=3"], "did you mean `dims.layers`"),
    "derived size": (["check", GPT2, "dims.hd=3"], "derived"),
    "no value": (["check", GPT2, "dims.layers="], "command line:1"),
    "unknown profile": (["check", GPT2, "--profile", "huge"], "no profile `huge`; it has: tiny"),
    "unknown code": (["explain", "G999"], "G999"),
    "ranks that do not divide": (
        ["train", GPT2, "--nproc", "3", *SMALL],
        "`--nproc 3`: the plan needs 8 ranks",
    ),
    "no such stage": (["show", GPT2, "source", "--stage", "7"], "the plan has 2, from 0"),
    "run that is none": (["eval", GPT2, "--run", "nowhere", *SMALL], "nowhere"),
    "weights of stages": (
        ["convert", GPT2, "--plan", "-o", "x.py", "--weights", "w"],
        "`--weights` goes with the plain module",
    ),
}


@pytest.mark.parametrize("case", MISUSE)
def test_misuse_is_exit_code_2_and_says_what_to_do(
    case: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments, message = MISUSE[case]
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "") and message in err and "Traceback" not in err
    if "error[" not in err:
        assert err.count("\n") == 1, err


@pytest.mark.parametrize("name", NOT_BUILT)
def test_what_is_not_built_says_so(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, name, GPT2)
    assert code == 2 and "not built yet" in err and err.count("\n") == 1


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_every_command_shows_an_example(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        main([*name.split(), "--help"])
    assert left.value.code == 0
    assert f"giantdsl {name}" in capsys.readouterr().out.split("example")[-1]


def test_explain_shows_a_page_and_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "explain", "g302")
    assert code == 0 and out.startswith("# G302") and "Right:" in out
    code, out, _ = run(capsys, "explain")
    assert code == 0 and out.count("\n") > 80


def test_fmt_writes_checks_and_shows_a_difference(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = here / "m.giant"
    path.write_text("model   m\ndims{d=3}   # three\n")
    assert run(capsys, "fmt", "--check", "m.giant")[0] == 1
    _code, out, _ = run(capsys, "fmt", "--diff", "m.giant")
    assert "+model m" in out and path.read_text().startswith("model   m")
    assert run(capsys, "fmt", "m.giant")[0] == 0
    assert path.read_text() == "model m\ndims { d = 3 }   # three\n"
    assert run(capsys, "fmt", "--check", ".")[0] == 0


def test_show_prints_each_step(capsys: pytest.CaptureFixture[str]) -> None:
    assert "Block" in run(capsys, "show", GPT2, "ast")[1]
    ir = run(capsys, "show", GPT2, "ir", *SMALL, "parallel.pp=1", "parallel.tp=1")[1]
    assert "sdpa" in ir and "linear" in ir
    assert "class Decoder(nn.Module):" in run(capsys, "show", GPT2, "source")[1]
    plan = run(capsys, "show", GPT2, "plan")[1]
    assert "gpt2 on 8 ranks: pp 2 x dp 2 x tp 2" in plan
    assert "all-gather s on tp (backward: reduce-scatter s)" in plan
    stage = run(capsys, "show", GPT2, "source", "--stage", "1")[1]
    assert "for i in range(8, 12)" in stage and "from giantdsl.runtime.ops import" in stage
    drawing = run(capsys, "show", GPT2, "schedule", "train.batch=16", "train.microbatch=1")[1]
    assert "F0" in drawing and "B0" in drawing and "bubble" in drawing


def test_convert_writes_a_file_a_stage(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "convert", GPT2, "--plan", "-o", "small.py", *SMALL)[0] == 0
    files = sorted(path.name for path in here.glob("small_stage_*.py"))
    assert files == ["small_stage_0.py", "small_stage_1.py"]
    for path in files:
        compile((here / path).read_text(), path, "exec")


def test_new_makes_a_spec_that_checks_and_leaves_files_alone(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(capsys, "new", "mine")[0] == 0
    assert run(capsys, "check", "mine.giant")[0] == 0
    assert run(capsys, "fmt", "--check", "mine.giant")[0] == 0
    code, _, err = run(capsys, "new", "mine")
    assert code == 2 and "exists" in err
    assert run(capsys, "new", "7up")[0] == 2


def test_doctor(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "doctor", "--json")
    findings = {f["what"]: f for f in json.loads(out)["findings"]}
    assert code == 0 and findings["torch"]["ok"]


def test_train_eval_generate_and_weights_of_a_run(
    trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = (trained / "r" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [1, 2, 3]
    written = (trained / "r" / "spec.giant").read_text()
    assert "dims" in written and "steps = 3" in written and "d = 16" in written
    code, out, err = run(capsys, "eval", "r/spec.giant", "--run", "r", "--batches", "1", "--json")
    assert code == 0 and json.loads(out)["step"] == 3, err
    texts = [
        run(
            capsys,
            "generate",
            "r/spec.giant",
            "--run",
            "r",
            "--prompt",
            "the",
            "--max-tokens",
            "30",
        )
        for _ in range(2)
    ]
    assert texts[0][0] == 0 and texts[0] == texts[1] and texts[0][1].startswith("the")
    weights = ["--weights", "w", "--run", "r"]
    assert run(capsys, "convert", "r/spec.giant", "-o", "m.py", *weights)[0] == 0
    assert (trained / "w" / "model.safetensors").is_file()
    code, _, err = run(capsys, "eval", GPT2, "--run", "r", "parallel.pp=1")
    assert code == 2 and "is a run of `tiny`" in err


def test_data_prepare_and_inspect(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "a.txt").write_text("hello")
    code, _, err = run(capsys, "data", "prepare", "a.txt", "-o", "out", "--tokenizer", "byte")
    assert code == 0 and "1 documents, 6 tokens" in err
    code, out, _ = run(capsys, "data", "inspect", "out", "--tokenizer", "byte")
    assert code == 0 and "'hello'" in out and "longest    6" in out
    code, _, err = run(capsys, "data", "prepare", "none.txt", "-o", "o", "--tokenizer", "byte")
    assert code == 2 and "none.txt" in err


def test_hugging_face_there_and_back(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    transformers = pytest.importorskip("transformers", reason="needs transformers")
    config = transformers.GPT2Config(
        vocab_size=61,
        n_positions=16,
        n_embd=32,
        n_layer=2,
        n_head=4,
        activation_function="gelu_new",
    )
    transformers.GPT2LMHeadModel(config).save_pretrained(here / "hf")
    assert run(capsys, "hf", "import", "hf", "-o", "m.giant")[0] == 0
    assert run(capsys, "check", "m.giant")[0] == 0
    settings = ["train.data=synthetic()", "train.steps=1", "train.batch=2", 'train.init=hf("hf")']
    done = run(capsys, "train", "m.giant", *settings, "train.lr=0.0", "--quiet", "--run-dir", "r")
    assert done[0] == 0, done
    exported = run(capsys, "hf", "export", "m.giant", "--run", "r", "-o", "back")
    assert exported[0] == 0, exported
    one = transformers.GPT2LMHeadModel.from_pretrained(here / "hf").state_dict()
    two = transformers.GPT2LMHeadModel.from_pretrained(here / "back").state_dict()
    assert all(one[name].equal(two[name]) for name in one)
