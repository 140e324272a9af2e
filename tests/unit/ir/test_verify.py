"""The verifier refuses what breaks an invariant. Each case changes the text of a good program."""

from __future__ import annotations

import dataclasses
import re

import pytest

from giantdsl.errors import InternalError
from giantdsl.ir.nodes import Call, Op, Program, Repeat, WeightUse
from giantdsl.ir.text import format_program, parse_program
from giantdsl.ir.verify import verify
from giantdsl.ir.verify_ops import check_op

from ..sema.helpers import MODELS, ROOT, every_op, forward, program_of

GOOD = format_program(
    program_of(
        forward(
            """
            q, k = linear(x) -> [b, s, ff], [b, s, ff]
            x = dropout(x, 0.1)
            repeat layers { x = mlp(x, keep) }
            stage
            y[s, b, d] = x
            h = linear(y, tie=tok) -> [b, s, vocab]
            loss lm = cross_entropy(h, labels)
            return x, h
            """,
            "[b, s, d], [b, s, vocab]",
            """
            block mlp(x[b, s, d], keep[b, s]: bool = none) -> [b, s, d] {
              y = linear(x, bias=true) as up -> [b, s, ff]
              loss even = mean(y, over=[b, s, ff])
              return linear(dropout(relu(y), 0.1)) as down -> [b, s, d]
            }
            """,
        )
    )
)

BROKEN = [
    # the types of values
    ("%keep.2: [b, s]: bool", "%keep.2: [b, b]: bool", "has an axis twice"),
    ("%keep.2: [b, s]: bool", "%keep.2: [b, w]: bool", "names an axis that is not there"),
    ("%tokens.0: [b, s]: vocab", "%tokens.0: [b, s]: words", "names an axis that is not there"),
    ("%x.3: [b, s, d] = emb", "%x.3: [b, s, ff] = emb", "embedding: the result is"),
    ("%h.13: [b, s, vocab]", "%h.13: [b, s, vocab]: int", "linear: the result is int"),
    # operations
    ("contracted=[d], created=[ff]", "contracted=[s], created=[ff]", "linear: no features"),
    ("contracted=[d], created=[ff]", "contracted=[d], created=[]", "linear: the result is"),
    ("square=false", "square=true", "linear: square is True"),
    ("mean(%y.2, over=[b, s, ff])", "mean(%y.2, over=[b, s, d])", "mean: .* are no axes of"),
    ("mean(%y.2, over=[b, s, ff])", "mean(%y.2)", "mean: no attribute over"),
    ("relu(%y.2)", "relu(%x.0)", "relu: the result is"),
    ("relu(%y.2)", "rolu(%y.2)", "rolu: unknown kind"),
    ("relu(%y.2)", "relu(%y.2, %y.2)", "relu: 2 inputs, not 1"),
    ("relu(%y.2)", "add(%y.2, %x.0)", "add: .* none has all axes"),
    ("permute(%x.10)", "permute(%h.13)", "defined above"),
    ("permute(%x.10)", "permute(%x.3, %x.3)", "permute: 2 inputs"),
    ("%y.12: [s, b, d]", "%y.12: [b, s, d]", "permute: nothing moves"),
    ("over=vocab", "over=d", "cross_entropy: "),
    ("p=0.1) site 1", "p=0.1)", "dropout: site is None"),
    ("p=0.1)", "p=0)", "dropout: site is 1"),
    # weights
    ("weight @up.weight: [d -> ff]", "weight @up.weight: [s -> ff]", "linear: weight is over"),
    ("weight @up.weight:", "weight @op.weight:", "the weight of layer up is called op"),
    (") as up ;", ") ;", "layer is ``"),
    ("bias @up.bias", "bios @up.bias", "linear: weights"),
    ("[vocab -> d] table", "[b -> d] table", "weight tok has the axis b"),
    # loops
    ("repeat 3 from", "repeat 4 from", "pattern"),
    ("pattern [0*3]", "pattern [0*2, 1*1]", "pattern"),
    ("body (%x.7: [b, s, d])", "body (%x.7: [b, s, ff])", "mlp|Mlp|carries"),
    ("-> (%x.10: [b, s, d])", "-> (%x.10: [s, b, d])", "results are not of the types it carries"),
    ("even=%even.11: []", "evan=%even.11: []", "losses are not those of its bodies"),
    ("pattern [0*3] site 3", "pattern [0*3]", "site is None, draws is True"),
    (" site 3 {", " site 1 {", "site 1 is used twice"),
    # functions
    (" draws {", " {", "draws is False"),
    ("losses(even=%even.3)", "losses(even=%even.3, even=%even.3)", "two losses of one name"),
    ("losses(even=%even.3)", "losses(even=%y.2)", "loss even is"),
    ("call Mlp(%x.7, %keep.2)", "call Mlp(%x.7)", "1 inputs for Mlp"),
    ("call Mlp(%x.7, %keep.2)", "call Mlp(%x.7, none)", "Mlp needs keep"),
    ("call Mlp(%x.7, %keep.2)", "call Mlp(%x.7, %tokens.0)", "keep of Mlp is given"),
    ("losses(%even.9: [])", "losses(%even.9: [b])", "Mlp gives other results or losses"),
    ("function Tiny ", "function Mlp ", "is no symbol of its own"),
    ("function Tiny ", "function T' ", "is no symbol of its own"),
    # counts
    ("count lm ", "count ln ", "which is no loss"),
    ("count lm valid(%labels.1", "count lm valid(none", "has the wrong labels"),
]


def test_the_program_is_good() -> None:
    verify(parse_program(GOOD))


@pytest.mark.parametrize(("old", "new", "message"), BROKEN, ids=lambda text: text[:40])
def test_broken(old: str, new: str, message: str) -> None:
    assert old in GOOD
    try:
        program = parse_program(GOOD.replace(old, new, 1))
    except ValueError as error:
        assert re.search(message, str(error)), str(error)
        return
    with pytest.raises(InternalError, match=message) as caught:
        verify(program)
    assert "please report" in str(caught.value)


def good() -> Program:
    return parse_program(GOOD)


def test_a_weight_is_owned_once() -> None:
    program = good()
    op = next(op for op in every_op(program) if op.kind == "linear")
    twin = dataclasses.replace(op, results=tuple(map(dataclasses.replace, op.results)))
    program.functions[0].statements.append(twin)
    with pytest.raises(InternalError, match="is owned twice"):
        verify(program)


def test_a_function_lists_its_weights() -> None:
    program = good()
    program.functions[0].weights.reverse()
    with pytest.raises(InternalError, match="its list of weights"):
        verify(program)


def test_a_tied_weight_has_an_owner() -> None:
    program = good()
    op = next(op for op in every_op(program) if any(use.tied for use in op.weights))
    foreign = dataclasses.replace(op.weights[0].weight)
    op.weights = (WeightUse("weight", foreign, tied=True),)
    with pytest.raises(InternalError, match="nobody there owns it"):
        verify(program)
    op.weights = (WeightUse("weight", foreign, tied=True, path=(("nowhere", ()),)),)
    with pytest.raises(InternalError, match="goes through nowhere"):
        verify(program)


def test_callees_come_first() -> None:
    program = good()
    program.functions.reverse()
    with pytest.raises(InternalError, match="which does not come before it"):
        verify(program)


def test_values_are_defined_once() -> None:
    program = good()
    statements = program.forward.statements
    statements.append(statements[-1])
    with pytest.raises(InternalError, match="is defined twice|is used twice"):
        verify(program)


def test_what_a_loop_computes_stays_in_it() -> None:
    program = good()
    loop = next(s for s in program.forward.statements if isinstance(s, Repeat))
    last = program.forward.statements[-1]
    assert isinstance(last, Op)
    call = loop.bodies[0].statements[0]
    assert isinstance(call, Call)
    later = next(s for s in program.forward.statements if isinstance(s, Op) and s.kind == "permute")
    later.inputs = call.results
    with pytest.raises(InternalError, match="which is not in scope"):
        verify(program)


def test_stages_are_cut_in_forward_only() -> None:
    program = good()
    mark = next(s for s in program.forward.statements if type(s).__name__ == "StageMark")
    program.functions[0].statements.append(mark)
    with pytest.raises(InternalError, match="outside `forward`"):
        verify(program)


def test_fused_products_are_neighbours() -> None:
    program = good()
    statements = program.forward.statements
    fused = [s for s in statements if isinstance(s, Op) and s.fuse is not None]
    assert len(fused) == 2
    statements.remove(fused[1])
    statements.append(fused[1])
    with pytest.raises(InternalError, match="is no group of neighbours"):
        verify(program)


def test_nothing_is_no_program() -> None:
    program = good()
    program.functions.clear()
    with pytest.raises(InternalError, match="without functions"):
        verify(program)


def test_every_kind_of_op_is_checked_somewhere() -> None:
    """The specs here use every kind; each one is refused without its inputs or attributes."""
    seed = ROOT / "tests" / "fuzz" / "seeds" / "builtins.giant"
    programs = [program_of(path.read_text(encoding="utf-8")) for path in [*MODELS, seed]]
    kinds: set[str] = set()
    for program in programs:
        for op in every_op(program):
            assert check_op(program, op) is None
            kinds.add(op.kind)
            more = dataclasses.replace(op, inputs=(*op.inputs, *op.results, *op.results))
            assert check_op(program, more) is not None or op.kind == "extern", op.kind
            bare = dataclasses.replace(op, attrs={}, weights=(), results=())
            assert check_op(program, bare) is not None, op.kind
    table = (ROOT / "docs" / "ir.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([a-z_ ]+|scale, shift, power, rdiv) \|", table, re.MULTILINE)
    documented = {kind for row in rows for kind in re.split(r"[ ,]+", row) if kind != "kind"}
    assert documented - kinds == set()
    assert kinds <= documented
