"""The canonical layout: what it looks like, that it is a fixed point, that it changes nothing."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from giantdsl.diagnostics import Sink
from giantdsl.source import SourceFile
from giantdsl.syntax.equal import ast_equal
from giantdsl.syntax.format import format_text
from giantdsl.syntax.lexer import lex

from .helpers import SPECS, parse_clean, spec_texts


def _format(text: str) -> str:
    sink = Sink()
    result = format_text(SourceFile("test.giant", text), sink)
    assert result is not None, [str(x) for x in sink.diagnostics]
    return result


def _body(text: str) -> str:
    inner = "".join(f"  {line}\n" if line else "\n" for line in text.splitlines())
    return f"forward(x[b]) -> [b] {{\n{inner}}}\n"


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_specs(path: object) -> None:
    text = path.read_text(encoding="utf-8")  # type: ignore[attr-defined]
    once = _format(text)
    assert _format(once) == once
    assert ast_equal(parse_clean(text).items, parse_clean(once).items)
    # Line breaks and comments are the writer's: only `=` in maps may move.
    assert [line.split() for line in once.splitlines()] == [
        line.split() for line in text.splitlines()
    ]


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("y=a+b*c", "y = a + b * c"),
        ("y = -a ** -b", "y = -a ** -b"),
        ("y=a - -b", "y = a - -b"),
        ("y=f( a,b = 1 ,c= [1,2] )", "y = f(a, b=1, c=[1, 2])"),
        ("y=( a+b )*c", "y = (a + b) * c"),
        ("y = f (a) [ s = 0 ]", "y = f(a)[s=0]"),
        ("y = x[s = 1 : , t = : 4, u as u']", "y = x[s=1:, t=:4, u as u']"),
        ("q,k=linear( x )as n->[ b,s@tp ],[b , ..]", "q, k = linear(x) as n -> [b, s@tp], [b, ..]"),
        ("y=a if b==c else-d", "y = a if b == c else -d"),
        ("y=not(a<b)and c", "y = not (a < b) and c"),
        ("return(a)", "return (a)"),
        ("return[a,b]", "return [a, b]"),
        ("loss lm=f(x)", "loss lm = f(x)"),
        ("repeat i in n shared{x=y}", "repeat i in n shared { x = y }"),
        ("repeat(n){}", "repeat (n) { }"),
        ("if a{x=y}else if b{ }else{x=z;}", "if a { x = y } else if b { } else { x = z }"),
        ("stage every(8)", "stage every (8)"),
        ("x = y;z=w ;; v=u;", "x = y;  z = w;  v = u"),
        ("y = a   # note", "y = a   # note"),
        ("y = a # note", "y = a  # note"),
        ("y = a#note", "y = a  #note"),
        ("#   own", "#   own"),
        ("y = every(3)", "y = every(3)"),
        ("x[b,s]=y", "x[b, s] = y"),
        ('y = f("a  b")', 'y = f("a  b")'),
    ],
)
def test_statements(text: str, want: str) -> None:
    if text.startswith("y = every"):
        text, want = f"train {{\n  {text}\n}}\n", f"train {{\n  {want}\n}}\n"
    else:
        text, want = _body(text), _body(want)
    assert _format(text) == want


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("model   a", "model a\n"),
        ('import a,b from"x"', 'import a, b from "x"\n'),
        ("dims{b:batch;s : seq=3}", "dims { b: batch;  s: seq = 3 }\n"),
        ("default f( a = 1 )", "default f(a=1)\n"),
        (
            "block f < s,d > ( x [..,s],c=f(a = 1) , k[b] :bool=none )->[b] : v{}",
            "block f<s, d>(x[.., s], c = f(a=1), k[b]: bool = none) -> [b]: v { }\n",
        ),
        (
            'extern e(x[..],d=0.9)->[..]from"a:b"along d,e',
            'extern e(x[..], d = 0.9) -> [..] from "a:b" along d, e\n',
        ),
        (
            "parallel{shard a,b on tp else s;pp=4}",
            "parallel { shard a, b on tp else s;  pp = 4 }\n",
        ),
        ("profile p{train . lr . peak=1e-3}", "profile p { train.lr.peak = 1e-3 }\n"),
        ('weights hf from"a"', 'weights hf from "a"\n'),
        (
            'weights hf{a . * . ( q,k )="b" . T[d,( _ h )]{ }}'.replace('" . T', '".T'),
            'weights hf { a.*.(q, k) = "b".T [d, (_ h)] { } }\n',
        ),
        ("train { save = every ( 1000,keep = 5 ) }", "train { save = every(1000, keep=5) }\n"),
    ],
)
def test_sections(text: str, want: str) -> None:
    assert _format(text) == want


def test_indentation_of_braces_and_lines_that_go_on() -> None:
    text = """
block f(x[b],
y[b]) -> [b] {
y = g(x,
h(x,
y), [1,
2])
     z = g(
x,
y
)
 w = x
+ y
     repeat 3 {
x = y   # c
# inside
}
v = a +
b
 }
block g(x[b])
-> [b] { return x }
"""
    assert (
        _format(text)
        == """block f(x[b],
        y[b]) -> [b] {
  y = g(x,
        h(x,
          y), [1,
               2])
  z = g(
      x,
      y
  )
  w = x
      + y
  repeat 3 {
    x = y   # c
    # inside
  }
  v = a +
      b
}

block g(x[b])
    -> [b] { return x }
"""
    )


def test_blank_lines() -> None:
    text = "\n\nmodel a\n\n\n\ndims {\n\n  d = 3\n\n\n  e = 4\n\n}\ndefault f(a=1)\n# about g\n"
    text += "block g(x[b]) -> [b] {\n  return x\n}\nforward() -> [] { }\n\n\n"
    assert _format(text) == (
        "model a\n\ndims {\n  d = 3\n\n  e = 4\n}\ndefault f(a=1)\n\n# about g\n"
        "block g(x[b]) -> [b] {\n  return x\n}\n\nforward() -> [] { }\n"
    )


def test_entries_are_aligned_in_runs() -> None:
    text = """weights hf {
  a = "x"
  long.name = "y".T [d,
    e]
  decoder.* = "h.*" {
    n = "ln"
    attention.(q, k) = "c" [d, (_ h)]
    # a comment parts
    mlp.up = "u"; b = "c"
    c = "d"

    dd = "e"
  }
}
train {
  a = 3
  long = 4
}
"""
    assert (
        _format(text)
        == """weights hf {
  a         = "x"
  long.name = "y".T [d,
                     e]
  decoder.* = "h.*" {
    n                = "ln"
    attention.(q, k) = "c" [d, (_ h)]
    # a comment parts
    mlp.up = "u";  b = "c"
    c = "d"

    dd = "e"
  }
}
train {
  a = 3
  long = 4
}
"""
    )


def test_comments_that_stood_below_each_other_still_do() -> None:
    text = """dims {
  a=1     # one
  bb = 2  # two
  c = 3      # apart
  d = f(1,   # three
  2)         # four
}
"""
    assert (
        _format(text)
        == """dims {
  a = 1   # one
  bb = 2  # two
  c = 3      # apart
  d = f(1,   # three
        2)   # four
}
"""
    )


def test_comments_at_the_edges() -> None:
    text = "# top\n\nmodel a # m\ndims { # open\n# in\nd = 3\n# last\n} # close\n# end"
    assert _format(text) == (
        "# top\n\nmodel a  # m\ndims {  # open\n  # in\n  d = 3\n  # last\n}  # close\n# end\n"
    )


@pytest.mark.parametrize("text", ["", "\n\n", "  ", "\ufeff", "\r\n"])
def test_nothing_stays_nothing(text: str) -> None:
    assert _format(text) == ""


def test_line_ends_are_kept_and_the_byte_order_mark_goes() -> None:
    assert _format("\ufeffmodel a\r\n\r\n\r\ndims { }") == "model a\r\n\r\ndims { }\r\n"
    assert _format("model a") == "model a\n"


def test_a_broken_file_is_not_touched() -> None:
    sink = Sink()
    assert format_text(SourceFile("a", "dims { d 3 }"), sink) is None
    assert [x.code for x in sink.diagnostics] == ["G016"]


def test_layouts_at_random_come_out_as_one() -> None:
    """Spaces, blank lines, comments and breaks put in at random: a fixed point is reached at
    once, with the same tree and the same comments."""
    rng = random.Random(11)
    texts = spec_texts()
    done = 0
    for _ in range(150):
        text = _shaken(rng.choice(texts), rng)
        once = format_text(SourceFile("a", text), Sink())
        if once is None:
            continue  # a break where none may be
        done += 1
        assert _format(once) == once, text
        assert _comments(once) == _comments(text)
        assert all(line == line.rstrip() for line in once.splitlines())
        assert "\n\n\n" not in once
    assert done > 100


def _comments(text: str) -> list[str]:
    found = lex(SourceFile("a", text), Sink()).comments
    return [text[token.start : token.end].rstrip() for token in found]


def _shaken(text: str, rng: random.Random) -> str:
    tokens = lex(SourceFile("a", text), Sink()).tokens
    out, at, depth = [], 0, 0
    for token, following in pairwise(tokens):
        depth += {"LPAR": 1, "LSQB": 1, "RPAR": -1, "RSQB": -1}.get(token.kind, 0)
        gap = text[token.end : following.start]
        chance = rng.random()
        if following.kind == "_NL" and "#" not in gap and chance < 0.05:
            gap = rng.choice([" # c", "   # d é", "#x", " ;"])
        elif token.kind == "_NL" and text[token.start] == "\n" and chance < 0.1:
            gap = rng.choice(["\n", "\n\n  # own\n", "   ", "\t", "", "# x\n"])
        elif chance < 0.1 and "#" not in gap and "_NL" not in (token.kind, following.kind):
            breaks = ["\n", "\n\n", "  # c\n", "\n  # d\n  "]
            is_open = depth > 0 or token.kind in ("COMMA", "EQUAL", "PLUS", "LBRACE")
            gap = rng.choice(breaks) if is_open else gap + rng.choice([" ", "   ", "\t"])
        out.append(text[at : token.end] + gap)
        at = following.start
    shaken = "".join(out) + text[at:]
    return shaken.replace("\n", "\r\n") if rng.random() < 0.1 else shaken
