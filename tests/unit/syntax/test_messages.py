"""A message for every mistake: cases, their examples, and what is said without one."""

from __future__ import annotations

import random
import re
from collections import Counter

import pytest

from giantdsl.diagnostics import Diagnostic, Sink, render
from giantdsl.source import SourceFile
from giantdsl.syntax.cases import CASES
from giantdsl.syntax.expected import in_words
from giantdsl.syntax.faults import Fault
from giantdsl.syntax.lexer import lex
from giantdsl.syntax.messages import examples, explain, find_case, first_fault
from giantdsl.syntax.parser import table

from .helpers import mended, only, parse, parse_clean, spec_texts

EXAMPLES = list(examples())


@pytest.mark.parametrize(
    ("code", "name", "text"),
    EXAMPLES,
    ids=[f"{name}-{i}" for i, (_, name, _) in enumerate(EXAMPLES)],
)
def test_each_example_gets_its_own_message(code: str, name: str, text: str) -> None:
    fault = first_fault(table(), text)
    assert fault is not None
    case = find_case(fault)
    assert case is not None and (case.name, case.code) == (name, code)
    _check_wording(explain(fault))


def test_every_case_has_an_example_and_a_name_of_its_own() -> None:
    names = [case.name for case in CASES]
    assert len(set(names)) == len(names)
    assert {name for _, name, _ in EXAMPLES} == set(names)


def _check_wording(found: Diagnostic) -> None:
    """As the style asks: lower case, no full stop, no name of a terminal, one line each."""
    for text in (found.message, found.primary.text, found.help or "x"):
        assert text and text == text.strip() and "\n" not in text
        assert not text.endswith(".") or text.endswith("`.")
        plain = re.sub(r"`[^`]*`", "", text)
        assert not re.search(r"\b[A-Z]{2,}\b", plain.replace("UTF-8", "").replace("A to Z", ""))
        assert "{{" not in text and "}}" not in text
    assert not found.message[0].isupper()
    assert re.fullmatch(r"G0\d\d", found.code)
    assert render(found)


def test_every_state_that_broken_specs_reach_has_words() -> None:
    """Tokens of all specs taken out, doubled, replaced: nothing is left with a bare message."""
    rng = random.Random(3)
    seen: Counter[bool] = Counter()
    states = set()
    for text in spec_texts():
        for mutated in _one_token_wrong(text, rng):
            fault = first_fault(table(), mutated)
            if fault is None:
                continue
            states.add((fault.state, fault.token.kind))
            seen[find_case(fault) is None] += 1
            _check_wording(explain(fault))
    assert len(states) > 250
    assert seen[True] / seen.total() < 0.15, seen


_WORDS = [
    *("x", "3", '"s"', "(", ")", "[", "]", "{", "}", ",", "=", ":", "+", "-", "->", "as", ".."),
    *(".", "if", "else", "return", "loss", "block", "shard", "==", "@", "\n", ";", "<", "in"),
]


def _one_token_wrong(text: str, rng: random.Random) -> list[str]:
    tokens = lex(SourceFile("x", text), Sink()).tokens
    result = []
    for token in rng.sample(tokens, min(30, len(tokens))):
        word = rng.choice(_WORDS)
        before, after = text[: token.start], text[token.end :]
        here = text[token.start : token.end]
        result += [before + after, f"{before} {word} {after}", f"{before} {word} {here}{after}"]
    return result


def test_the_generic_message_says_what_could_come() -> None:
    found = only("forward(x[b]) -> [b] {\n  y = f(x @ z)\n}")
    assert found.code == "G000"
    assert found.message == "`@` cannot stand here"
    assert found.primary.text == "expected an operator, `(`, `)`, `,`, `.`, `=`, `[` or `if`"


@pytest.mark.parametrize(
    ("kinds", "words"),
    [
        (["NAME"], "a name"),
        (["EQUAL", "COLON"], "`:` or `=`"),
        (["_NL", "$END"], "a new line"),
        (["$END"], "the end"),
        (["NAME", "RETURN", "LOSS", "REPEAT", "IF", "STAGE", "RBRACE"], "a statement or `}`"),
        (["NAME", "SHARD", "RBRACE"], "`shard` or a setting or `}`"),
    ],
)
def test_expectations_in_words(kinds: list[str], words: str) -> None:
    assert in_words(kinds) == words


def test_every_terminal_has_a_word() -> None:
    for row in table().rows:
        for kind in row:
            if kind.isupper() or kind == "$END":
                assert not re.search(r"\b[A-Z_]{3,}\b", in_words([kind]).replace("1f1b", ""))


def _body(text: str) -> str:
    return f"forward(x[b]) -> [b] {{\n  {text}\n}}\n"


@pytest.mark.parametrize(
    ("text", "code", "after"),
    [
        ("dims { d: 768 }", "G002", "dims { d = 768 }"),
        ("dims { d 768 }", "G016", "dims { d = 768 }"),
        ("dims { d == 768 }", "G016", "dims { d = 768 }"),
        ("dims { d = 3, e = 4 }", "G005", "dims { d = 3; e = 4 }"),
        ("dims { b: batch d = 4 }", "G005", "dims { b: batch; d = 4 }"),
        ("train { lr: 3 }", "G016", "train { lr = 3 }"),
        ("train { a = [1 2] }", "G017", "train { a = [1, 2] }"),
        ('model "gpt"', "G029", "model gpt"),
        ("blok f(x[b]) -> [b] { }", "G019", "block f(x[b]) -> [b] { }"),
        ("block f(x[b s]) -> [b] { }", "G017", "block f(x[b, s]) -> [b] { }"),
        ("block f(x[b, s,]) -> [b] { }", "G017", "block f(x[b, s]) -> [b] { }"),
        ("block f(x[b] bool) -> [b] { }", "G024", "block f(x[b]: bool) -> [b] { }"),
        ("block f(x[b] y[b]) -> [b] { }", "G017", "block f(x[b], y[b]) -> [b] { }"),
        (_body("x += 1"), "G015", _body("x = x + 1")),
        (_body("retrun x"), "G020", _body("return x")),
        (_body("repeat i layers { }"), "G031", _body("repeat i in layers { }")),
        (_body("if i = 3 { }"), "G016", _body("if i == 3 { }")),
        (_body("if a { }\n  else { }"), "G026", _body("if a { } else { }")),
        (_body("if a { } elif b { }"), "G021", _body("if a { } else if b { }")),
        (_body("stage 8"), "G031", _body("stage every 8")),
        (_body("y = f(x a=3)"), "G017", _body("y = f(x, a=3)")),
        (_body("y = f(x, a: 3)"), "G016", _body("y = f(x, a=3)")),
        (_body("y = f(x,, z)"), "G017", _body("y = f(x, z)")),
        (_body("y = f(a\n    b)"), "G017", _body("y = f(a,\n    b)")),
        (_body("y = x[s:4]"), "G025", _body("y = x[s=:4]")),
        (_body("y = +3"), "G018", _body("y = 3")),
        (_body("y = f(x; z)"), "G005", _body("y = f(x, z)")),
    ],
)
def test_fixes_mend(text: str, code: str, after: str) -> None:
    assert only(text).code == code
    assert mended(text) == after
    parse_clean(after)


@pytest.mark.parametrize(
    "text",
    [
        "dims { loss = 3 }",
        "dims { d: block = 3 }",
        "block train(x[b]) -> [b] { }",
        "block f(if[b]) -> [b] { }",
        "block f(x[b, on]) -> [b] { }",
        _body("block = x"),
        _body("stage = x"),
        _body("return = x"),
        _body("y = f(x) as shared"),
        _body("y = x + every"),
        'import repeat from "a"',
        "model model",
    ],
)
def test_a_keyword_is_no_name(text: str) -> None:
    found = only(text)
    assert (found.code, found.message) == ("G006", "a keyword cannot be a name")


def test_keywords_that_look_like_their_section() -> None:
    assert only("forward(x[b]) -> [b] {\n  dims { d = 3 }\n}").code == "G032"
    assert [x.code for x in parse("train { shard heads on tp }")[1]] == ["G032"]


def test_a_fault_knows_its_surroundings() -> None:
    fault = first_fault(table(), _body("y = f(x, [1 2])"))
    assert isinstance(fault, Fault)
    assert fault.bracket == "LSQB" and fault.is_in_braces and fault.section == "FORWARD"
    assert fault.text(fault.head) == "y" and fault.text(fault.previous) == "1"
    assert fault.text(fault.next) == "]" and fault.shown() == "`2`"
