"""How diagnostics look: carets where an editor would put them, whatever the text holds."""

from giantdsl.diagnostics import Diagnostic, Label, Severity, Sink, render, render_all
from giantdsl.diagnostics.render import COLOUR
from giantdsl.errors import SpecError
from giantdsl.source import SourceFile, Span


def span_of(source: SourceFile, word: str, nth: int = 0) -> Span:
    at = -1
    for _ in range(nth + 1):
        at = source.text.index(word, at + 1)
    return source.span(at, at + len(word))


def test_whole_transcript_with_a_second_label_above() -> None:
    source = SourceFile("tiny.giant", "a\nparallel {\n  tp = 2\n\n\n  shard vocab on tp\n}\n")
    found = Diagnostic(
        "G302",
        "`vocab` does not divide by tp",
        Label(span_of(source, "vocab"), "50257 entries over tp = 2"),
        "pad it: `vocab = pad(50257, 128)`",
        (Label(span_of(source, "tp = 2"), "tp = 2"),),
    )
    assert render(found) == (
        "error[G302]: `vocab` does not divide by tp\n"
        " --> tiny.giant:6:9\n"
        "  |\n"
        "3 |   tp = 2\n"
        "  |   ------ tp = 2\n"
        "...\n"
        "6 |   shard vocab on tp\n"
        "  |         ^^^^^ 50257 entries over tp = 2\n"
        "  |\n"
        "  = help: pad it: `vocab = pad(50257, 128)`"
    )


def test_tabs_move_the_carets_with_the_text() -> None:
    source = SourceFile("t.giant", "\tx = \thaeds\n")
    lines = render(Diagnostic("G101", "no axis", Label(span_of(source, "haeds"), ""))).split("\n")
    assert lines[3].index("haeds") == lines[4].index("^^^^^")


def test_a_span_over_several_lines_is_underlined_to_the_end_of_its_first() -> None:
    source = SourceFile("t.giant", "x = f(a,\n  b)\ny\n")
    lines = render(Diagnostic("G207", "m", Label(source.span(4, 13), "here"))).split("\n")
    assert lines[3:] == ["1 | x = f(a,", "  |     ^^^^ here"]


def test_an_empty_span_at_the_end_of_the_file_still_shows_a_caret() -> None:
    source = SourceFile("t.giant", "model m")
    text = render(Diagnostic("G000", "m", Label(source.span(7, 7), "end")))
    assert text.endswith("1 | model m\n  |        ^ end")


def test_a_very_long_line_is_cut_around_the_place() -> None:
    source = SourceFile("t.giant", "x" * 5000 + " bad " + "y" * 5000)
    lines = render(Diagnostic("G000", "m", Label(span_of(source, "bad"), "here"))).split("\n")
    assert max(len(line) for line in lines) < 320
    assert lines[3][lines[4].index("^") :].startswith("bad")


def test_control_characters_never_reach_the_terminal() -> None:
    source = SourceFile("t.giant", "x = \x1b[31m")
    assert "\x1b" not in render(Diagnostic("G000", "m", Label(source.span(4, 5), "")))


def test_a_label_in_another_file_names_it() -> None:
    here = SourceFile("a.giant", "import f\n")
    there = SourceFile("b.giant", "block f\n")
    found = Diagnostic(
        "G104",
        "m",
        Label(span_of(here, "f"), "again"),
        None,
        (Label(span_of(there, "f"), "first"),),
    )
    assert " ::: b.giant:1:7" in render(found)


def test_colour_is_only_escape_sequences() -> None:
    source = SourceFile("t.giant", "abc\n")
    found = Diagnostic("G000", "m", Label(source.span(0, 3), "x"), severity=Severity.WARNING)
    coloured = render(found, COLOUR)
    for sequence in (COLOUR.error, COLOUR.warning, COLOUR.accent, COLOUR.bold, COLOUR.reset):
        coloured = coloured.replace(sequence, "")
    assert coloured == render(found)
    assert render(found).startswith("warning[G000]: m")


def test_the_sink_keeps_each_fault_once_in_the_order_of_the_file() -> None:
    source = SourceFile("t.giant", "abc def\n")
    sink = Sink()
    late = Diagnostic("G000", "late", Label(source.span(4, 7), ""))
    early = Diagnostic("G000", "early", Label(source.span(0, 3), ""))
    for found in (late, early, late):
        sink.add(found)
    assert sink.diagnostics == [early, late]


def test_warnings_do_not_stop_but_errors_raise_with_all_of_them() -> None:
    source = SourceFile("t.giant", "abc def\n")
    sink = Sink()
    sink.add(Diagnostic("W001", "w", Label(source.span(0, 3), ""), severity=Severity.WARNING))
    sink.raise_if_errors()
    sink.add(Diagnostic("G000", "e", Label(source.span(4, 7), "")))
    try:
        sink.raise_if_errors()
    except SpecError as error:
        assert [d.code for d in error.diagnostics] == ["W001", "G000"]
        assert str(error) == render_all(error.diagnostics)
        assert (error.diagnostics[1].line, error.diagnostics[1].column) == (1, 5)
    else:
        raise AssertionError("an error must raise")
