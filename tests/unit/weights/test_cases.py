"""Whole transcripts of wrong maps: `tests/cases/check/weights_*.giant`.

`python -m tests.unit.weights.test_cases` writes the expected files anew; read the difference.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from giantdsl.driver import compile_spec
from giantdsl.errors import SpecError
from giantdsl.source import SourceFile

FOLDER = Path(__file__).parents[2] / "cases" / "check"
CASES = sorted(FOLDER.glob("weights_*.giant"))


def transcript(path: Path) -> str:
    with pytest.raises(SpecError) as caught:
        compile_spec(SourceFile(path.name, path.read_text(encoding="utf-8")))
    return str(caught.value) + "\n"


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_transcript(path: Path) -> None:
    assert transcript(path) == path.with_suffix(".expected").read_text(encoding="utf-8")


def test_every_code_has_a_transcript() -> None:
    shown = "".join(path.with_suffix(".expected").read_text(encoding="utf-8") for path in CASES)
    assert {f"G50{i}" for i in range(1, 7) if f"[G50{i}]" not in shown} == set()


if __name__ == "__main__":
    for case in CASES:
        case.with_suffix(".expected").write_text(transcript(case), encoding="utf-8")
