"""Broken specs: diagnostics and nothing else. `mutate.py` runs as many as one likes."""

from __future__ import annotations

import time

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from giantdsl.diagnostics import Sink, render_all
from giantdsl.source import SourceFile
from giantdsl.syntax import parse_expression, parse_file, parse_setting
from giantdsl.syntax.format import format_text
from giantdsl.syntax.tokens import PUNCTUATION, WORDS

from .helpers import mutants, spec_texts
from .mutate import check_mutant


def test_mutants_give_diagnostics_in_bounded_time() -> None:
    broken = 0
    for text in mutants(spec_texts(), 400, seed=2):
        broken += check_mutant(text) > 0
    assert broken > 200


def test_the_same_seed_gives_the_same_mutants() -> None:
    assert list(mutants(["model a"], 5, seed=1)) == list(mutants(["model a"], 5, seed=1))


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.text(alphabet=st.one_of(st.sampled_from("(){}[]=,;:.\n\"'#@<>-+*/ ab1'"), st.characters()))
)
def test_any_text(text: str) -> None:
    for parse in (parse_file, parse_expression, parse_setting):
        sink = Sink()
        parse(SourceFile("x", text), sink)
        render_all(sink.diagnostics)
    format_text(SourceFile("x", text), Sink())


_WORDS = st.sampled_from(
    [*WORDS, *PUNCTUATION, "x", "y", "1", "2.5", '"s"', "\n", "\n", "1f1b", "(", ")", "{", "}"]
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(_WORDS, max_size=40))
def test_any_words(words: list[str]) -> None:
    start = time.process_time()
    assert check_mutant(" ".join(words)) >= 0
    assert time.process_time() - start < 20
