"""Places in text: lines and columns as editors count them."""

from giantdsl.source import SourceFile


def test_positions_at_every_kind_of_place() -> None:
    source = SourceFile("x", "ab\n\ncd")
    assert [source.position(i) for i in range(7)] == [
        (1, 1), (1, 2), (1, 3), (2, 1), (3, 1), (3, 2), (3, 3),
    ]  # fmt: skip
    assert source.num_lines == 3


def test_line_text_has_no_line_break_of_either_kind() -> None:
    source = SourceFile("x", "ab\r\ncd\n")
    assert [source.line_text(n) for n in (1, 2, 3)] == ["ab", "cd", ""]


def test_an_empty_file_has_one_empty_line() -> None:
    source = SourceFile("x", "")
    assert (source.num_lines, source.position(0), source.line_text(1)) == (1, (1, 1), "")


def test_spans_join_and_name_their_place() -> None:
    source = SourceFile("m.giant", "model m\ndims {}\n")
    joined = source.span(0, 5).to(source.span(8, 12))
    assert (joined.text, joined.end_line, str(joined)) == ("model m\ndims", 2, "m.giant:1")
