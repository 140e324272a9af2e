"""Every message of the checker in full: `tests/cases/check/<code>_<what>.giant` and `.expected`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ..golden import check_golden, transcript

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "tests" / "cases" / "check"
SPECS = sorted(FOLDER.glob("[GW]*.giant"))


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_transcript(path: Path, request: pytest.FixtureRequest) -> None:
    check_golden(path.with_suffix(".expected"), transcript(path), request)


def test_nothing_is_left_over() -> None:
    assert {path.stem for path in FOLDER.glob("[GW]*.expected")} == {path.stem for path in SPECS}


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_a_case_shows_its_code_and_no_follow_on(path: Path) -> None:
    shown = path.with_suffix(".expected").read_text(encoding="utf-8")
    code = path.stem.split("_")[0]
    found = set(re.findall(r"^(?:error|warning)\[(\w+)\]", shown, re.MULTILINE))
    assert found == {code}


def test_every_code_of_the_checker_has_a_case() -> None:
    sources = (ROOT / "giantdsl" / "sema").rglob("*.py")
    text = "".join(path.read_text(encoding="utf-8") for path in sources)
    emitted = set(re.findall(r'"(G[12]\d\d)"', text))
    assert len(emitted) > 35
    assert emitted - {path.stem.split("_")[0] for path in SPECS} == set()


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_wording(path: Path) -> None:
    """Plain, lower-case, no full stop; the help is there to type from."""
    for line in path.with_suffix(".expected").read_text(encoding="utf-8").splitlines():
        if found := re.match(r"(?:error|warning)\[\w+\]: (.*)", line):
            message = found[1]
            assert not message.endswith("."), message
            assert message[0] in "`-+*/" or not message[0].isupper(), message
            assert message.count("`") % 2 == 0, message
