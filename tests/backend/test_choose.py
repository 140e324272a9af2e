"""Ranks talk over giant where it can be built, else over gloo, and one line says why."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from giantdsl.backends.choose import Chosen, choose_backend
from giantdsl.backends.giant import BuildError, build, capability

from giantdsl import resources
from giantdsl.cli.main import main

NO_COMPILER = (
    "the giant backend needs a C++20 compiler to be built: install g++;"
    " ranks talk over gloo, which is slower"
)
SMALL = (
    *(
        "dims.d=16",
        "dims.heads=2",
        "dims.kv=2",
        "dims.ff=16",
        "dims.vocab=64",
        "dims.layers=2",
        "dims.s=8",
    ),
    *("train.data=synthetic()", "train.tokenizer=none", "train.batch=4", "train.steps=2"),
    *("train.eval=none", "train.save=none"),
)


@pytest.fixture
def broken_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with a line for each file that was to be compiled, in vain."""
    compiler, calls = tmp_path / "c++", tmp_path / "calls"
    compiler.write_text(
        f'#!/bin/sh\n[ "$1" = --version ] && exit 0\necho "$*" >> {calls}\n'
        "echo 'error: no such language' >&2\nexit 1\n"
    )
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    monkeypatch.setenv("GIANTDSL_CACHE", str(tmp_path / "cache"))
    return calls


def test_giant_where_it_can_be_built() -> None:
    assert choose_backend("cpu") == Chosen("giant")


def test_gloo_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert choose_backend("cpu") == Chosen("gloo", NO_COMPILER)


def test_what_does_not_build_is_not_built_again_and_again(
    broken_compiler: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = choose_backend("cpu")
    assert chosen.name == "gloo"
    assert chosen.warning is not None and "does not build; the log is" in chosen.warning
    calls = broken_compiler.read_text()
    assert choose_backend("cpu") == chosen and broken_compiler.read_text() == calls
    assert capability().failed is not None
    with pytest.raises(BuildError, match="no such language"):
        build()
    assert len(broken_compiler.read_text()) > len(calls)
    capsys.readouterr()
    assert main(["doctor"]) == 0
    (row,) = [line for line in capsys.readouterr().out.splitlines() if "CPU backend" in line]
    assert "none" in row and "gloo: giant did not build, see" in row


@pytest.mark.parametrize("command", ["train", "verify"])
def test_the_command_line_says_it_once(command: str, tmp_path: Path) -> None:
    arguments = {
        "train": ["parallel.dp=2", "--quiet", "--run-dir", str(tmp_path / "run"), *SMALL],
        "verify": ["--layouts", "dp=2"],
    }
    done = subprocess.run(
        [sys.executable, "-m", "giantdsl", command, str(resources.model_path("demo")),
         *arguments[command]],
        env={**os.environ, "CXX": "no-such-compiler"}, capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stderr.splitlines() if "giant backend" in line]
    assert lines == [f"warning: {NO_COMPILER}"]
