"""Broken specs end in diagnostics. `python -m tests.fuzz.run` runs many more."""

from __future__ import annotations

from collections import Counter

import pytest

from . import run
from .mutate import mutant, spec_texts
from .run import attempt, try_compile

TEXTS = spec_texts()
MODELS = [text for text in TEXTS if "\nforward" in text]


def test_what_mutants_are_made_from_compiles() -> None:
    assert len(MODELS) > 9
    assert {try_compile(text) for text in MODELS} == {"compiled"}


def test_mutants_end_in_diagnostics() -> None:
    outcomes = [attempt(seed, TEXTS) for seed in range(400)]
    assert [(found.seed, found.fault) for found in outcomes if found.fault] == []
    kinds = Counter(found.kind for found in outcomes)
    assert kinds["errors"] > 200
    assert kinds["compiled"] > 20


def test_mutants_are_broken_in_many_ways_and_the_same_each_time() -> None:
    first = [mutant(seed, TEXTS) for seed in range(100)]
    assert first == [mutant(seed, TEXTS) for seed in range(100)]
    assert len(set(first)) > 95
    assert sum(text in TEXTS for text in first) < 10


def test_a_crash_and_a_slow_case_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(text: str) -> str:
        raise KeyError("x")

    assert "KeyError" in attempt(1, TEXTS, crash).fault
    assert attempt(1, TEXTS, lambda text: "errors").fault == ""
    monkeypatch.setattr(run, "LIMIT_S", -1.0)
    assert "took" in attempt(1, TEXTS, lambda text: "errors").fault
