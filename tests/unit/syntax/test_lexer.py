"""Characters: every one is part of something, or a diagnostic."""

from __future__ import annotations

import pytest

from giantdsl.diagnostics import Sink
from giantdsl.source import SourceFile
from giantdsl.syntax.lexer import lex

from .helpers import codes, mended, only, parse_clean, spec_texts


def _kinds(text: str) -> list[str]:
    sink = Sink()
    kinds = [token.kind for token in lex(SourceFile("x", text), sink).tokens]
    assert not sink.diagnostics
    return kinds


def test_kinds() -> None:
    assert _kinds("block blocks s' true 1f1b _x 3M") == [
        *("BLOCK", "NAME", "NAME", "TRUE", "ONE_F_ONE_B", "NAME", "NUMBER"),
    ]
    assert _kinds("a->b ** c//d<=e..") == [
        *("NAME", "ARROW", "NAME", "POWER", "NAME", "FLOOR", "NAME", "CMP", "NAME", "REST"),
    ]


def test_transposition_is_read_only_behind_a_string() -> None:
    assert _kinds('"a".T [d]') == ["STRING", "TRANSPOSED", "LSQB", "NAME", "RSQB"]
    assert _kinds("a.T") == ["NAME", "DOT", "NAME"]
    assert _kinds('"a".Tx') == ["STRING", "DOT", "NAME"]


def test_runs_of_newlines_are_one_token_and_comments_are_kept_apart() -> None:
    lexed = lex(SourceFile("x", "a # one\n\n  # two\n\nb;c"), Sink())
    assert [token.kind for token in lexed.tokens] == ["NAME", "_NL", "NAME", "_NL", "NAME"]
    assert len(lexed.comments) == 2


def test_tokens_and_comments_cover_all_but_space() -> None:
    for text in spec_texts():
        lexed = lex(SourceFile("x", text), Sink())
        left = list(text)
        for token in [*lexed.tokens, *lexed.comments]:
            left[token.start : token.end] = " " * (token.end - token.start)
        assert "".join(left).strip() == ""


@pytest.mark.parametrize(
    ("text", "code", "after"),
    [
        ("d := 3", "G015", "d = 3"),
        ("d = 3 && 4", "G015", "d = 3 and 4"),
        ("d = 3||4", "G015", "d = 3 or 4"),
        ("d = !a", "G015", "d = not a"),
        ("d = 4 × a", "G015", "d = 4 * a"),
        ("d = 4 − a", "G015", "d = 4 - a"),
        ("d = 4\u00a0* a", "G014", "d = 4 * a"),
        ("d\u200b = 4", "G014", "d = 4"),
        ("d ＝ 4", "G014", "d = 4"),
    ],
)
def test_characters_of_other_places(text: str, code: str, after: str) -> None:
    text = f"dims {{ {text} }}"
    assert only(text).code == code
    assert mended(text) == f"dims {{ {after} }}"


def test_a_continued_line_is_one_message() -> None:
    found = only("dims {\n  d = 4 \\\n    + 3\n  e = 5\n}")
    assert found.code == "G014" and (found.line, found.column) == (2, 9)


def test_invisible_characters_are_reported_once_with_all_their_fixes() -> None:
    text = "dims {\n\u00a0\u00a0d = 3\n\u00a0\u00a0e\u00a0= 4\n}"
    found = only(text)
    assert found.code == "G014" and len(found.fixes) == 5
    assert "the first of 5" in found.primary.text
    assert "no-break space" in found.message
    parse_clean(mended(text))


def test_lone_carriage_returns_are_line_ends_that_should_be_others() -> None:
    text = "model a\rdims { d = 3 }\r# c\rtrain { steps = 3 }"
    assert only(text).code == "G014"
    assert len(parse_clean(mended(text)).items) == 3


@pytest.mark.parametrize("char", ["?", "$", "`", "~", "^", "\x00", "☃", "\x1b"])
def test_what_means_nothing(char: str) -> None:
    assert codes(f"dims {{ d = 3 {char} 4 }}") == ["G014"]
    assert codes(f'# {char}\ntrain {{ data = "{char}" }}') == []


def test_a_name_with_letters_of_other_alphabets_is_one_message() -> None:
    found = only("dims { größe = 3; d = 3 }")
    assert found.code == "G014" and found.primary.span.text == "größe"


def test_an_unclosed_string_swallows_brackets_without_more_ado() -> None:
    assert codes('train { data = f("a; b = 3 }\n}') == ["G011"]
    assert codes('forward(x[b]) -> [b] {\n  y = f(x, "abc)\n  return y\n}') == ["G011"]
    assert codes('forward(x[b]) -> [b] {\n  repeat 3 { y = f("abc) }\n  return y\n}') == ["G011"]


def test_a_second_prime() -> None:
    assert codes("forward(x[s'', t]) -> [s] { }") == ["G014"]
