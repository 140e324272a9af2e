"""The grammar has no conflicts, its shipped table is current, and lark reads what we read."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from lark.exceptions import LarkError

from giantdsl.resources import folder
from giantdsl.source import SourceFile
from giantdsl.syntax.engine import Engine
from giantdsl.syntax.table import build_data, build_lark, load_table
from giantdsl.syntax.tokens import KEYWORDS, PUNCTUATION, Token

from .helpers import parse_clean, spec_texts

GRAMMAR = (folder("grammar") / "giant.lark").read_text(encoding="utf-8")


def test_the_grammar_has_no_conflicts() -> None:
    with pytest.raises(LarkError):
        build_lark('start: a | b\na: "x"\nb: "x"\nexpr: a\nsetting: b', strict=True)
    # Only the parser's conflicts count; strict mode would also object to the lexer's overlaps,
    # which the contextual lexer resolves, so the conflicts are read from lark's log.
    assert _conflicts(GRAMMAR) == []


def _conflicts(grammar: str) -> list[str]:
    script = (
        "import logging, sys\n"
        "from lark import logger\n"
        "logger.setLevel(logging.DEBUG)\n"
        "import giantdsl.syntax.table as table\n"
        "from lark import Lark\n"
        "Lark(sys.stdin.read(), parser='lalr', debug=True, start=list(table.STARTS),\n"
        "     maybe_placeholders=True)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], input=grammar, capture_output=True, text=True, check=True
    )
    return [line for line in done.stderr.splitlines() if "onflict" in line]


def test_a_conflict_would_be_seen() -> None:
    dangling = GRAMMAR.replace(
        'call:    path "(" _args? ")" ["as" NAME] ["->" axes]',
        'call:    path "(" _args? ")" ["as" NAME] ["->" axes [":" NAME]]',
    )
    assert dangling != GRAMMAR
    assert _conflicts(dangling) != []


def test_the_shipped_table_is_that_of_the_grammar() -> None:
    """If this fails: python -m giantdsl.syntax.table"""
    shipped = json.loads((folder("grammar") / "giant.table.json").read_text(encoding="utf-8"))
    assert shipped == build_data(GRAMMAR)


@pytest.mark.parametrize("state", ["missing", "corrupt", "stale"])
def test_without_a_usable_table_it_is_built(tmp_path: Path, state: str) -> None:
    shutil.copy(folder("grammar") / "giant.lark", tmp_path)
    if state == "corrupt":
        (tmp_path / "giant.table.json").write_text('{"checksum": ')
    elif state == "stale":
        shutil.copy(folder("grammar") / "giant.table.json", tmp_path)
        text = GRAMMAR.replace('"model" NAME', '"model" STRING')
        (tmp_path / "giant.lark").write_text(text, encoding="utf-8")
    built, shipped = load_table(tmp_path), load_table()
    same = built.rows == shipped.rows and built.rules == shipped.rules
    assert same is (state != "stale")
    expected = {"giant.lark"} if state == "missing" else {"giant.lark", "giant.table.json"}
    assert {path.name for path in tmp_path.iterdir()} == expected, "nothing is written"


def test_the_keywords_and_signs_of_the_lexer_are_those_of_the_grammar() -> None:
    terminals = {symbol for row in load_table().rows for symbol in row if symbol.isupper()}
    assert set(KEYWORDS.values()) <= terminals
    assert set(PUNCTUATION.values()) <= terminals
    assert len(KEYWORDS) == 28


def test_lark_reads_every_spec_with_its_own_lexer() -> None:
    lark = build_lark(GRAMMAR)
    for text in spec_texts():
        parse_clean(text)
        # lark's newline rule lives in a post-lexer, so it gets the text with one line a
        # statement: newlines inside brackets and after operators taken out.
        lark.parse(_joined(text), start="start")


def _joined(text: str) -> str:
    from giantdsl.diagnostics import Sink
    from giantdsl.syntax.lexer import lex
    from giantdsl.syntax.newlines import drop_newlines

    source = SourceFile("x", text)
    kept = drop_newlines(lex(source, Sink()).tokens, source)
    words = ["\n" if token.kind == "_NL" else text[token.start : token.end] for token in kept]
    return " ".join(words).replace(" .T", ".T")


def test_the_engine_needs_no_builder_to_look_ahead() -> None:
    from giantdsl.diagnostics import Sink
    from giantdsl.syntax.build import Builder

    source = SourceFile("x", "")
    engine = Engine(load_table(), Builder(source, Sink()), source, [], "start")
    before = list(engine.states)
    assert engine.accepts(["MODEL", "NAME", "_NL", "DIMS", "LBRACE", "RBRACE", "$END"])
    assert not engine.accepts(["MODEL", "MODEL"])
    assert set(engine.accepted()) >= {"MODEL", "BLOCK", "$END"}
    assert "NAME" not in engine.accepted()
    assert engine.states == before
    assert engine.token(0) == Token("$END", 0, 0)


def test_every_example_of_the_readme_parses() -> None:
    text = (folder("grammar") / "README.md").read_text(encoding="utf-8")
    blocks = [part.split("```")[0] for part in text.split("```\n")[1::2]]
    assert len(blocks) >= 5
    for block in blocks:
        block = block.replace("…", "")
        is_body = block.startswith("  ")
        parse_clean(f"forward(x[b]) -> [b] {{\n{block}}}" if is_body else block)
