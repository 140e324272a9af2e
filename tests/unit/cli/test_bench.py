"""`giantdsl bench`: a table, an object, one line for a mistake."""

from __future__ import annotations

import importlib.util
import json

import pytest

from giantdsl.cli.main import main
from giantdsl.resources import model_path

GPT2 = str(model_path("gpt2"))
HAS_GIANT = importlib.util.find_spec("giantdsl.backends.giant") is not None
SHORT = ["--ops", "all_reduce,broadcast", "--sizes", "1k,64k", "--rounds", "2"]


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["bench", *arguments])
    out, err = capsys.readouterr()
    return code, out, err


MISUSE = {
    "later": (["train", GPT2], "`giantdsl bench train` is not built yet"),
    "later too": (["pipeline"], "`giantdsl bench pipeline` is not built yet"),
    "unknown": (["collectivs"], "no benchmark `collectivs`"),
    "nothing to run on": (["collectives"], "needs a SPEC or `--ranks N`"),
    "uneven hosts": (["collectives", "--ranks", "4", "--hosts", "3"], "4 ranks do not divide by 3"),
    "one rank": (["collectives", "--ranks", "1"], "measured on 2 to 32"),
    "ranks beside a plan": (["collectives", GPT2, "--ranks", "4"], "the plan has its own"),
    "unknown operation": (["collectives", "--ranks", "2", "--ops", "all_sum"], "`all_sum`"),
    "unknown size": (["collectives", "--ranks", "2", "--sizes", "many"], "size `many`"),
    "unknown backend": (["collectives", "--ranks", "2", "--backends", "mpi"], "backend `mpi`"),
    "no rounds": (["collectives", "--ranks", "2", "--rounds", "0"], "at least 1"),
}


@pytest.mark.parametrize("case", MISUSE)
def test_misuse_is_exit_code_2_and_one_line(case: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments, message = MISUSE[case]
    code, out, err = run(capsys, *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1) and message in err


@pytest.mark.skipif(HAS_GIANT, reason="the backend giant is there")
def test_giant_asked_for_and_not_there_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "collectives", "--ranks", "2", "--backends", "gloo,giant")
    assert code == 2 and "giantdsl.backends.giant" in err and err.count("\n") == 1


def test_json_has_a_row_a_cell(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--ranks", "4", "--hosts", "2", "--backends", "gloo", "--json"]
    code, out, _ = run(capsys, "collectives", *arguments, *SHORT)
    found = json.loads(out)
    assert code == 0 and found["ok"] and (found["hosts"], found["ranks"]) == (2, 4)
    assert "pretended" in found["notes"][0]
    cells = [(row["operation"], row["num_bytes"]) for row in found["rows"]]
    assert cells == [(op, n) for op in ("all_reduce", "broadcast") for n in (1024, 65536)]
    for row in found["rows"]:
        assert row["backend"] == "gloo" and row["is_correct"] and row["rounds"] == 2
        assert 0 < row["low"] <= row["seconds"] <= row["high"] and row["speed"] == 1


def test_the_table_of_a_plan_says_that_hosts_are_pretended(
    capsys: pytest.CaptureFixture[str],
) -> None:
    plan = ["parallel.pp=1", "parallel.dp=2", "parallel.tp=1", "--hosts", "2"]
    code, out, err = run(capsys, "collectives", GPT2, *plan, "--backends", "gloo", *SHORT)
    lines = out.splitlines()
    assert code == 0 and lines[0].split()[:3] == ["operation", "size", "backend"]
    assert len(lines) == 5 and "64 KiB" in lines[2] and "1.00x" in lines[2]
    assert "2 hosts are pretended" in err
