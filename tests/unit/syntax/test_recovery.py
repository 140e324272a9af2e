"""All errors of a file, and nothing that only follows from another."""

from __future__ import annotations

import pytest

from giantdsl.syntax import ast

from .helpers import codes, parse, places

TINY = """model tiny

dims {
  b: batch;  s: seq = 128
  d = 256;  vocab = 1000;  layers = 4
}

block mlp(x[b, s, d]) -> [b, s, d] {
  h = linear(x) as up -> [b, s, d]
  return linear(h) as down -> [b, s, d]
}

forward(tokens[b, s]: vocab) -> [b, s, vocab] {
  x = embedding(tokens) as tok -> [b, s, d]
  repeat layers { x = mlp(x) }
  return linear(x, tie=tok) -> [b, s, vocab]
}

train {
  batch = 64;  steps = 1000
}
"""


def _broken(*edits: tuple[str, str]) -> str:
    text = TINY
    for old, new in edits:
        assert old in text
        text = text.replace(old, new, 1)
    return text


def test_one_error_in_each_section_and_statement() -> None:
    text = _broken(
        ("d = 256;", "d: 256;"),
        ("layers = 4", "layers = 4 d"),
        ("mlp(x[b, s, d]) ->", "mlp(x[b, s, d])"),
        ("h = linear(x) as up", "h = linear(x) up"),
        ("x = mlp(x) }", "x = = mlp(x) }"),
        ("batch = 64;", "batch: 64;"),
    )
    assert places(text) == [
        ("G002", 5, 6),
        ("G004", 5, 38),
        ("G001", 8, 23),
        ("G005", 9, 17),
        ("G018", 15, 23),
        ("G016", 20, 8),
    ]


def test_what_can_be_read_is_returned() -> None:
    file, found = parse(_broken(("h = linear(x)", "h = linear x"), ("batch = 64", "batch 64")))
    assert [x.code for x in found] == ["G004", "G016"]
    assert [type(item).__name__ for item in file.items] == [
        *("Model", "Dims", "Block", "Forward", "Train"),
    ]
    block, train = file.items[2], file.items[4]
    assert isinstance(block, ast.Block) and len(block.body.statements) == 1
    assert isinstance(train, ast.Train)
    assert [x.path.text for x in train.settings] == ["steps"]


def test_a_section_with_a_broken_head_is_left_out_but_its_body_is_read() -> None:
    file, found = parse(_broken((") -> [b, s, d] {\n  h = linear(x)", ") {\n  h = linear x")))
    assert [x.code for x in found] == ["G001", "G004"]
    assert [type(item).__name__ for item in file.items] == ["Model", "Dims", "Forward", "Train"]


@pytest.mark.parametrize(
    "head",
    [
        "block (x[b]) -> [b]",
        "block f x -> [b]",
        "block f(x[b]",
        "forward x -> [b]",
        "blok f(x[b]) -> [b]",
        "block f(x[3]) -> [b]",
        "block f<s(x[b]) -> [b]",
    ],
)
def test_bodies_behind_broken_heads_are_still_checked(head: str) -> None:
    assert len(codes(f"{head} {{\n  y = x\n  z = = y\n  return z\n}}\ntrain {{ steps = 3 }}")) == 2


@pytest.mark.parametrize(
    "head", ["repeat i layers", "repeat", "if", "if a = b", "while a", "for i in b", "repat 3"]
)
def test_bodies_behind_broken_statements_are_still_checked(head: str) -> None:
    text = f"forward(x[b]) -> [b] {{\n  {head} {{ y = = x\n z = x }}\n  w = z\n}}"
    assert len(codes(text)) == 2


@pytest.mark.parametrize("head", ["dims x", "train = 3", "parallel x", "profile", "weights"])
def test_lines_behind_broken_section_heads_are_still_checked(head: str) -> None:
    line = 'a = = "b"' if head == "weights" else "a = = 3"
    assert len(codes(f"{head} {{\n  {line}\n}}")) == 2


def test_unknown_sections_are_one_error() -> None:
    assert codes("optimizer {\n  lr: 3\n  x y z\n}\ndims { d = 3 }\n") == ["G019"]
    assert codes("def f(x):\n  y = 3\n  return y\n\ndims { d 3 }\n") == ["G021", "G016"]


def test_lines_outside_of_sections_are_one_error_up_to_the_next_section() -> None:
    text = "model a\nx = 3\ny = 4\nreturn y\n}\ndims { d 3 }\n"
    assert codes(text) == ["G019", "G016"]


def test_a_nested_setting_is_one_error() -> None:
    text = "train {\n  optimizer {\n    lr = 3\n    x y\n  }\n  steps 3\n}"
    assert codes(text) == ["G032", "G016"]


def test_a_broken_entry_and_its_children() -> None:
    text = 'weights hf {\n  a.* "b" {\n    c "d"\n    e = "f"\n  }\n  g "h"\n}'
    assert codes(text) == ["G027", "G027", "G027"]


def test_a_missing_brace_hides_nothing_else() -> None:
    text = _broken(("{ x = mlp(x) }", "{ x = mlp(x)"), ("steps = 1000", "steps 1000"))
    assert places(text) == [("G007", 13, 47), ("G016", 20, 22)]


def test_a_missing_opening_brace() -> None:
    text = _broken((") -> [b, s, d] {", ") -> [b, s, d]"), ("steps = 1000", "steps 1000"))
    assert places(text) == [("G026", 8, 35), ("G016", 20, 22)]


def test_a_brace_too_many() -> None:
    assert codes(_broken(("x = mlp(x) }", "x = mlp(x) } }"))) == ["G019"]
    assert codes(_broken(("steps = 1000\n}", "steps = 1000\n}\n}"))) == ["G009"]


def test_trailing_commas_are_reported_line_by_line() -> None:
    text = "train {\n  batch = 3,\n  steps = 4,\n  a = [1,\n    2,\n  ]\n}"
    assert places(text) == [("G005", 2, 12), ("G005", 3, 12)]


def test_a_sentence_of_lexical_errors_is_not_blamed_twice() -> None:
    assert codes("dims { d = 3 ? ? 4 5 }") == ["G014", "G014"]
    assert codes("dims { d = 12abc 5; e = 1 2 }") == ["G013", "G004"]


def test_the_number_of_errors_is_bounded() -> None:
    found = codes("dims { d 3 }\n" * 5000)
    assert len(found) == 200 and "G023" in found
    assert len(codes("?\n" * 5000)) == 200


def test_the_end_of_a_file_in_the_middle_of_anything() -> None:
    for end in range(len(TINY)):
        _, found = parse(TINY[:end])
        assert len(found) <= 3, TINY[:end]
