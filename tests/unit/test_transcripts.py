"""The error catalogue of the design (language.md 4.2): one edit of a small spec, one message.

The expected texts are those that the design shows, with these differences:

* 14: a help line is added; the design's message told what is wrong, not what to do.
* 26: a warning. Data ranks with the same number of rows run, each with a smaller last microbatch
  (invariant 13); only rows that cannot be dealt out are an error.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ..golden import check_golden, transcript

FOLDER = Path(__file__).resolve().parents[1] / "cases" / "transcripts"
SPECS = sorted(FOLDER.glob("*.giant"))


def test_there_are_twenty_nine() -> None:
    assert [path.stem for path in SPECS] == [f"{number:02}" for number in range(1, 30)]
    assert [path.stem for path in sorted(FOLDER.glob("*.expected"))] == [p.stem for p in SPECS]


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_transcript(path: Path, request: pytest.FixtureRequest) -> None:
    found = transcript(path, "tiny.giant")
    check_golden(path.with_suffix(".expected"), found, request)


def test_each_shows_one_fault() -> None:
    for path in SPECS:
        assert path.with_suffix(".expected").read_text(encoding="utf-8").count("[G") == 1
