"""The text form of the IR: it reads back as what was written."""

from __future__ import annotations

from pathlib import Path

import pytest

from giantdsl.attrs import Attr, Config
from giantdsl.ir.nodes import Op, Program, Repeat, statements_of
from giantdsl.ir.parameters import count_parameters, iter_parameters
from giantdsl.ir.text import format_program, format_value, parse_program
from giantdsl.ir.text_tokens import IrSyntaxError, Tokens
from giantdsl.ir.verify import verify

from ..sema.helpers import MODELS, ROOT, forward, function_of, program_of

SEED = ROOT / "tests" / "fuzz" / "seeds" / "builtins.giant"
PROGRAMS = [*MODELS, SEED]


def read(path: Path) -> Program:
    return program_of(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_it_reads_back(path: Path) -> None:
    program = read(path)
    text = format_program(program)
    again = parse_program(text)
    verify(again)
    assert format_program(again) == text
    assert count_parameters(again) == count_parameters(program)
    pairs = zip(iter_parameters(again), iter_parameters(program), strict=True)
    assert all((a.name, a.shape) == (b.name, b.shape) for a, b in pairs)


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_everything_but_columns_survives(path: Path) -> None:
    """The nodes, field by field: what the text leaves out would be lost here."""
    program = read(path)
    again = parse_program(format_program(program))
    assert _facts(again) == _facts(program)


def _facts(program: Program) -> list[object]:
    found: list[object] = [program.model, program.scalars, program.extra]
    found += [(a.name, a.kind, a.size, a.logical, a.factors, a.terms) for a in _axes(program)]
    found += [(e.name, e.target, e.along, e.span.line) for e in program.externs.values()]
    found += [(n, c.kind, c.ignore, c.labels and c.labels.name) for n, c in program.counts.items()]
    for f in program.functions:
        params = [(p.name, p.type, i in f.optional, i in f.loss_only) for i, p in _each(f.params)]
        found.append((f.name, f.symbol, params, [v.type for v in f.results], f.span.line))
        found.append((f.static, f.generics, f.per, f.draws, [n for n, _ in f.losses]))
        found += [_weight(w) for w in f.weights]
        for s in statements_of(f):
            place = (type(s).__name__, s.span.source.name, s.span.line)
            if isinstance(s, Op):
                uses = [(u.role, u.tied, u.path, u.indices, _weight(u.weight)) for u in s.weights]
                made = [(v.name, v.type) for v in s.results]
                read = [(v.name, v.type) for v in s.inputs]
                found.append((place, s.kind, s.attrs, s.layer, s.fuse, s.site, uses, made, read))
            elif isinstance(s, Repeat):
                facts = (s.index, s.count, s.shared, s.pattern, s.every, s.site, len(s.bodies))
                found.append((place, facts, [v.type for v in s.results], [n for n, _ in s.losses]))
            else:
                found.append(place)
    return found


def _axes(program: Program) -> list[object]:
    return list(program.axes.values())


def _each(values: object) -> enumerate[object]:
    return enumerate(values)  # type: ignore[call-overload]


def _weight(w: object) -> tuple[object, ...]:
    names = ("member", "leaf", "axes", "per", "out_axes", "in_axes", "init", "lr", "decay", "dtype")
    return tuple(getattr(w, name) for name in names)


def test_it_is_the_same_each_time() -> None:
    assert format_program(read(SEED)) == format_program(read(SEED))


def test_it_reads_well() -> None:
    text = format_program(
        program_of(
            forward(
                """
                repeat i in layers { x = mix(x, strong=i == 0) }
                loss even = mean(x, over=[b, s, d])
                return linear(x, tie=tok, bias=true) as head -> [b, s, vocab]
                """,
                "[b, s, vocab]",
                """
                block mix(x[b, s, d], strong = false) -> [b, s, d] {
                  up, gate = linear(x) -> [b, s, ff], [b, s, ff]
                  if strong { up = dropout(up, 0.5) }
                  return linear(up * gate) as down -> [b, s, d]
                }
                """,
            )
        )
    )
    assert text.split("\n\n", 1)[1] == EXPECTED.lstrip("\n")


EXPECTED = """
function Mix "mix" (%x.0: [b, s, d]) static(strong=true) draws { ; 10
  %up.1: [b, s, ff] = linear(%x.0, contracted=[d], created=[ff], square=false, per=[]) as up \
fuse 1 ; 11
    weight @up.weight: [d -> ff] normal(0.02)
  %gate.2: [b, s, ff] = linear(%x.0, contracted=[d], created=[ff], square=false, per=[]) as gate \
fuse 1 ; 11
    weight @gate.weight: [d -> ff] normal(0.02)
  %up.3: [b, s, ff] = dropout(%up.1, p=0.5) site 1 ; 12
  %4: [b, s, ff] = mul(%up.3, %gate.2) ; 13
  %5: [b, s, d] = linear(%4, contracted=[ff], created=[d], square=false, per=[]) as down ; 13
    weight @down.weight: [ff -> d] normal(0.02)
  return (%5)
}

function Mix2 "mix" (%x.0: [b, s, d]) static(strong=false) { ; 10
  %up.1: [b, s, ff] = linear(%x.0, contracted=[d], created=[ff], square=false, per=[]) as up \
fuse 1 ; 11
    weight @up.weight: [d -> ff] normal(0.02)
  %gate.2: [b, s, ff] = linear(%x.0, contracted=[d], created=[ff], square=false, per=[]) as gate \
fuse 1 ; 11
    weight @gate.weight: [d -> ff] normal(0.02)
  %3: [b, s, ff] = mul(%up.1, %gate.2) ; 13
  %4: [b, s, d] = linear(%3, contracted=[ff], created=[d], square=false, per=[]) as down ; 13
    weight @down.weight: [ff -> d] normal(0.02)
  return (%4)
}

function Tiny "tiny" (%tokens.0: [b, s]: vocab, %labels.1: [b, s]: vocab, %keep.2: [b, s]: bool) \
draws { ; 16
  %x.3: [b, s, d] = embedding(%tokens.0, index=vocab, created=[d]) as tok ; 17
    weight @tok.weight: [vocab -> d] table normal(0.02)
  repeat 3 from (%x.3) index i pattern [0*1, 1*2] site 1 { ; 18
    body (%x.4: [b, s, d]) {
      %x.5: [b, s, d] = call Mix(%x.4) as mix site 1 ; 18
      yield (%x.5)
    }
    body (%x.6: [b, s, d]) {
      %x.7: [b, s, d] = call Mix2(%x.6) as mix ; 18
      yield (%x.7)
    }
  } -> (%x.8: [b, s, d])
  %even.9: [] = mean(%x.8, over=[b, s, d]) ; 19
  %10: [b, s, vocab] = linear(%x.8, contracted=[d], created=[vocab], square=false, per=[]) \
as head ; 20
    weight tied @tok.weight
    bias @head.bias: [vocab] constant(0.0)
  return (%10) losses(even=%even.9)
}

count even rows
"""


def test_ties_name_their_way() -> None:
    body = "x = mlp(x)\ny = linear(x, tie=mlp.up) -> [b, s, ff]\nreturn x"
    block = "block mlp(x[b, s, d]) -> [b, s, d] { y = linear(x) as up -> [b, s, ff]\n return x }"
    program = program_of(forward(body, rest=block))
    text = format_program(program)
    assert "    weight tied @Mlp/up.weight via mlp\n" in text
    again = parse_program(text)
    [use] = [u for op in statements_of(again.forward) if isinstance(op, Op) for u in op.weights][1:]
    assert use.weight is function_of(again, "Mlp").weights[0]
    assert (use.tied, use.path) == (True, (("mlp", ()),))


ATTRS: list[Attr] = [
    None, True, False, 0, -3, 2**60, 0.5, -1e-30, 1e300, "s'", "none", "two words", 'q"\\\n', "",
    (), ("a", ("b", 1), None), Config("zeros"), Config("1f1b"),
    Config("yarn", (4, "x"), (("factor", 8), ("inner", Config("f", (None,))))),
]  # fmt: skip


@pytest.mark.parametrize("value", ATTRS, ids=repr)
def test_attributes_keep_their_type(value: Attr) -> None:
    found = Tokens(format_value(value)).attr()
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("as tok", "as tok as", "line 22: expected `; line`, found `as`"),
        ("linear(%x.4", "linear(%x.9", "expected a value that is defined above, found `%x.9`"),
        ("tied @tok", "tied @tak", "expected a weight that is written above"),
        ("%x.3:", "%x.3 [", "expected `:`"),
        ("axis b: batch", "axis b: bunch", "expected one of batch, seq, feature, ragged"),
        ("call Mlp(", "call Mip(", "expected a function that is defined above"),
        ("feature = 32", "feature = 3.2", "expected a whole number, found `3.2`"),
        ("program tiny", "model tiny", "line 1: expected `program`, found `model`"),
        ("function Mlp", "fun Mlp", "expected axis, scalar, extra, extern, function or count"),
        ("[b, s, d]", "[b, s, $]", "`$` means nothing here"),
    ],
)
def test_wrong_text_says_where(old: str, new: str, message: str) -> None:
    block = "block mlp(x[b, s, d]) -> [b, s, d] { return linear(x) as up }"
    text = format_program(
        program_of(forward("x = mlp(x)\nreturn linear(x, tie=tok) -> [b, s, vocab]",
                           "[b, s, vocab]", block))
    )  # fmt: skip
    assert old in text
    with pytest.raises(IrSyntaxError) as caught:
        parse_program(text.replace(old, new))
    assert message in str(caught.value)


def test_a_cut_text_says_so() -> None:
    text = format_program(program_of(forward("return x")))
    with pytest.raises(IrSyntaxError, match="found the end"):
        parse_program(text[: text.rindex("return")])


def test_lines_of_other_files_are_kept() -> None:
    library = "block twice<d>(x[.., d]) -> [.., d] {\n  return x * 2\n}\n"
    text = forward("return twice(x)", rest='import twice from "lib"')
    program = program_of(text, files={"lib": library})
    again = parse_program(format_program(program))
    op = function_of(again, "Twice").statements[0]
    assert str(op.span) == "lib.giant:2"
    assert str(again.forward.statements[0].span) == f"tiny.giant:{_line(text, 'embedding')}"


def _line(text: str, word: str) -> int:
    return text[: text.index(word)].count("\n") + 1
