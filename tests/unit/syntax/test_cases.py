"""Whole transcripts: `tests/cases/syntax/NAME.giant` and `NAME.expected`.

`python -m tests.unit.syntax.test_cases` writes the expected files anew; read the difference.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from giantdsl.diagnostics import Sink, render_all
from giantdsl.source import SourceFile
from giantdsl.syntax import parse_file

from .helpers import ROOT, codes

FOLDER = ROOT / "tests" / "cases" / "syntax"
CASES = sorted(FOLDER.glob("*.giant"))

# Made by other means than a text: unreadable files, more errors than fit.
_ELSEWHERE = {"G022": "test_read", "G023": "test_recovery"}


def transcript(path: Path) -> str:
    sink = Sink()
    with path.open(encoding="utf-8", newline="") as file:
        parse_file(SourceFile(path.name, file.read()), sink)
    shown = render_all(sink.diagnostics)
    return shown + "\n" if shown else ""


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_transcript(path: Path) -> None:
    assert transcript(path) == path.with_suffix(".expected").read_text(encoding="utf-8")


def test_every_code_has_a_transcript() -> None:
    shown = "".join(path.with_suffix(".expected").read_text(encoding="utf-8") for path in CASES)
    every = {f"G{i:03}" for i in range(34)}
    missing = {code for code in every if f"[{code}]" not in shown}
    assert missing <= set(_ELSEWHERE), missing


def test_no_transcript_is_left_over() -> None:
    assert {path.stem for path in FOLDER.glob("*.expected")} == {path.stem for path in CASES}


def test_the_transcripts_are_of_more_than_one_error() -> None:
    text = (FOLDER / "everything_at_once.giant").read_text(encoding="utf-8")
    assert len(codes(text)) > 25


if __name__ == "__main__":
    for case in CASES:
        case.with_suffix(".expected").write_text(transcript(case), encoding="utf-8")
