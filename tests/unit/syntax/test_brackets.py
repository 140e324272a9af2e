"""Brackets that do not match are reported where they are open, once."""

from __future__ import annotations

import pytest

from .helpers import mended, only, parse, places


def _body(text: str) -> str:
    return f"forward(x[b]) -> [b] {{\n{text}\n}}\ntrain {{ steps = 3 }}\n"


@pytest.mark.parametrize(
    ("text", "code", "line", "column"),
    [
        ("  y = f(x\n  return y", "G008", 2, 8),
        ("  y = f(g(x)\n  return y", "G008", 2, 8),
        ("  y = f(x,\n        z\n  w = y", "G008", 2, 8),
        ("  y = f(x) -> [b, s\n  z = y", "G008", 2, 15),
        ("  y = f(x; z = y", "G008", 2, 8),
        ("  y = f(x", "G008", 2, 8),
        ("  y = f(x[s=0)", "G008", 2, 10),
        ("  y = [1, 2)", "G009", 2, 12),
        ("  y = (1, 2]", "G009", 2, 12),
        ("  y = f(x))", "G009", 2, 11),
        ("  y = x]", "G009", 2, 8),
        ("  repeat 3 { y = f(x }", "G008", 2, 19),
    ],
)
def test_round_and_square(text: str, code: str, line: int, column: int) -> None:
    assert places(_body(text)) == [(code, line, column)]


def test_an_unclosed_bracket_does_not_reach_into_the_next_section() -> None:
    assert places("default linear(bias=true\ndims { d = 3 }\n") == [("G008", 1, 15)]
    assert places("train {\n  a = f(3\n}\ndims { d 3 }\n") == [("G008", 2, 8), ("G016", 4, 10)]


def test_two_unclosed_brackets_in_two_statements() -> None:
    assert places(_body("  y = f(x\n  z = g(y\n  return z")) == [("G008", 2, 8), ("G008", 3, 8)]


def test_what_is_missing_is_said() -> None:
    found = only(_body("  y = f(x[s=0\n  return y"))
    assert found.help == "add the missing `]` and `)`"
    assert found.others[0].span.text == "return"


def test_a_wrong_closer_is_mended() -> None:
    text = _body("  y = f(x]")
    assert mended(text) == text.replace("x]", "x)")


def test_braces() -> None:
    assert places("dims {\n  d = 3\n\ntrain {\n  steps = 3\n}\n") == [("G007", 1, 6)]
    assert places("dims {\n  d = 3\n") == [("G007", 1, 6)]
    found = only("forward(x[b]) -> [b] {\n  repeat 3 {\n    if x {\n")
    assert (found.code, found.help) == ("G007", "add the 3 missing `}`")


def test_indented_keywords_and_settings_do_not_look_like_sections() -> None:
    text = "profile p {\ntrain.steps = 3\nparallel.dp = 1\nmodel = 3\ndefault = 4\n}\n"
    assert not parse(text)[1]
