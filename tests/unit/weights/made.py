"""Small programs made by hand, so that these tests need no compiler."""

from __future__ import annotations

from collections.abc import Sequence

from giantdsl.diagnostics import Sink
from giantdsl.ir.nodes import (
    Body,
    Call,
    Function,
    Init,
    Op,
    Program,
    Repeat,
    Statement,
    Value,
    Weight,
    WeightUse,
)
from giantdsl.ir.types import Axis, AxisKind, TensorType
from giantdsl.source import SourceFile, Span
from giantdsl.syntax import ast, parse_file

SPAN = SourceFile("made.giant", "").span(0, 0)
VALUE = Value("x", TensorType(()), SPAN)
SIZES = {
    "d": 6, "heads": 2, "hd": 3, "kv": 1, "ff": 8, "experts": 4, "one": 1, "s": 5,
    "c": 3, "py": 2, "px": 2, "layers": 3, "types": 2,
}  # fmt: skip


def weight(
    member: str,
    leaf: str,
    out: str,
    into: str = "",
    per: str = "",
    *,
    table: bool = False,
) -> Weight:
    """Axes are words in a string; `table` puts the in axes first, as embeddings have them."""
    o, i, p = tuple(out.split()), tuple(into.split()), tuple(per.split())
    axes = (*p, *i, *o) if table else (*p, *o, *i)
    return Weight(member, leaf, axes, p, o, i, Init("zeros"), 1.0, None, None, SPAN)


def op(layer: str, *weights: Weight, ties: Sequence[Weight] = ()) -> Op:
    uses = [WeightUse("weight", w, tied=True) for w in ties]
    uses += [WeightUse(w.leaf or "weight", w) for w in weights]
    return Op("linear", (VALUE,), (VALUE,), {}, tuple(uses), layer, SPAN)


def linear(layer: str, out: str, into: str, per: str = "", *, bias: bool = False) -> Op:
    weights = [weight(layer, "weight", out, into, per)]
    if bias:
        weights.append(weight(layer, "bias", out, "", per))
    return op(layer, *weights)


def function(name: str, *statements: Statement) -> Function:
    return Function(
        name, name.title(), (), frozenset(), frozenset(), (), (), list(statements), [], {}, {}, (),
        False, SPAN,
    )  # fmt: skip


def call(target: Function, member: str | None = None) -> Call:
    return Call(target, (), (), (), member or target.name, SPAN)


def repeat(*bodies: Sequence[Statement], pattern: Sequence[int], shared: bool = False) -> Repeat:
    made = tuple(Body((), list(statements), (), ()) for statements in bodies)
    return Repeat("i", len(pattern), shared, made, tuple(pattern), (), (), (), 0, SPAN)


def program(*functions: Function, pads: dict[str, int] | None = None) -> Program:
    axes = {n: Axis(n, AxisKind.FEATURE, size, None, (), (), SPAN) for n, size in SIZES.items()}
    axes["b"] = Axis("b", AxisKind.BATCH, None, None, (), (), SPAN)
    axes["vocab"] = Axis("vocab", AxisKind.FEATURE, 12, 10, (), (), SPAN)
    return Program("made", axes, {}, list(functions), {}, {}, SPAN)


def gpt(layers: int = 3) -> Program:
    """A GPT-2 in names: attention with q, k, v, out; an embedding; a tied head."""
    attention = function(
        "attention",
        *(linear(n, "heads hd", "d", bias=True) for n in "qkv"),
        linear("out", "d", "heads hd", bias=True),
    )
    decoder = function(
        "decoder",
        op("norm", weight("norm", "weight", "d"), weight("norm", "bias", "d")),
        call(attention),
        linear("up", "ff", "d", bias=True),
    )
    tok = weight("tok", "weight", "d", "vocab", table=True)
    forward = function(
        "forward",
        op("tok", tok),
        repeat([call(decoder)], pattern=[0] * layers),
        op("head", weight("head", "bias", "vocab"), ties=[tok]),
        op("logits", ties=[tok]),
    )
    return program(attention, decoder, forward)


GPT_MAP = """
weights hf {
  tok = "t.wte"
  head = "cls"
  decoder.* = "t.h.*" {
    norm = "ln"
    attention.(q, k, v) = "c_attn" [d, (_ heads hd)]
    attention.out = "c_proj".T
    up = "c_fc"
  }
}
"""


def parse_weights(text: str) -> ast.Weights:
    sink = Sink()
    tree = parse_file(SourceFile("map.giant", text), sink)
    sink.raise_if_errors()
    return next(item for item in tree.items if isinstance(item, ast.Weights))


def span_text(span: Span) -> str:
    return span.source.text[span.start : span.end]
