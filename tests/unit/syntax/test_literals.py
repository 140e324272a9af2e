"""Numbers and strings."""

from __future__ import annotations

import pytest

from giantdsl.syntax import ast

from .helpers import expression, mended, only


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1024", 1024),
        ("50_257", 50257),
        ("0", 0),
        ("007", 7),
        ("0.1", 0.1),
        ("3e-4", 3e-4),
        ("1E3", 1000.0),
        ("2k", 2000),
        ("3M", 3_000_000),
        ("300B", 300_000_000_000),
        ("1T", 1_000_000_000_000),
        ("1.5M", 1_500_000),
        ("0.0015k", 1.5),
        ("1e3k", 1_000_000),
        ("1e12", 1e12),
    ],
)
def test_numbers(text: str, value: float) -> None:
    node = expression(text)
    assert isinstance(node, ast.Number)
    assert node.value == value and type(node.value) is type(value)


@pytest.mark.parametrize("text", ["1e999", "1e400k", "9e300T", "9" * 200, "9" * 5000])
def test_numbers_that_are_too_large(text: str) -> None:
    found = only(f"dims {{ d = {text} }}")
    assert found.code == "G013" and "too large" in found.message


@pytest.mark.parametrize(
    ("text", "help"),
    [
        ("12abc", "multiplication is written out: `12 * abc`"),
        ("1K", "write `1k`; the suffixes are k, M, B and T"),
        ("3G", "write `3B`; the suffixes are k, M, B and T"),
        ("0x10", "numbers are written like `1024`, `50_257`, `0.1`, `3e-4` or `300B`"),
        ("1.2.3", "numbers are written like `1024`, `50_257`, `0.1`, `3e-4` or `300B`"),
        ("4.", "write `4.0`"),
        (".5", "write `0.5`"),
    ],
)
def test_malformed_numbers(text: str, help: str) -> None:
    found = only(f"dims {{ d = {text}\n}}")
    assert (found.code, found.help) == ("G013", help)


def test_mended_numbers() -> None:
    assert mended("dims { d = 4. }") == "dims { d = 4.0 }"
    assert mended("dims { d = .5 }") == "dims { d = 0.5 }"


def test_strings() -> None:
    node = expression(r'"a # \"b\" \\ {c}; é\n\t"')
    assert isinstance(node, ast.String) and node.value == 'a # "b" \\ {c}; é\n\t'


def test_unknown_escapes() -> None:
    found = only(r'train { data = "C:\data" }')
    assert found.code == "G012" and found.primary.span.text == r"\d"


@pytest.mark.parametrize(
    ("quoted", "plain"),
    [("'a'", '"a"'), ("“a b”", '"a b"'), ("‘a’", '"a"'), ("«a»", '"a"'), ("''", '""')],
)
def test_other_quotes(quoted: str, plain: str) -> None:
    text = f"train {{ data = {quoted}; steps = 3 }}"
    assert only(text).code == "G011"
    assert mended(text) == text.replace(quoted, plain)


@pytest.mark.parametrize(
    ("word", "ours"), [("True", "true"), ("False", "false"), ("None", "none"), ("null", "none")]
)
def test_literals_of_other_languages(word: str, ours: str) -> None:
    text = f"train {{ a = f(x, b={word}) }}"
    assert only(text).code == "G021"
    assert mended(text) == text.replace(word, ours)
