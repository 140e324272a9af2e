"""The tree of a `.giant` file: frozen, spanned, doing nothing.

Every node knows the stretch of text it was read from. Names keep their own span so that a
diagnostic can point at the word and not at the statement around it.
"""

from __future__ import annotations

from dataclasses import dataclass

from giantdsl.source import SourceFile, Span


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Node:
    span: Span


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Name(Node):
    """An identifier as written; axes may end in a prime: `s'`."""

    text: str


# ---- types --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AxisRef(Node):
    """`heads`, or `heads@tp` with a layout of its own."""

    name: Name
    mesh: Name | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RestAxes(Node):
    """`..`: the axes a library block does not name."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Axes(Node):
    """`[b, s, d]`."""

    axes: tuple[AxisRef | RestAxes, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ValueType(Node):
    """`[b, s]: vocab`; without a dtype the value is float."""

    axes: Axes
    dtype: Name | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Param(Node):
    """`keep[b, t]: bool = none`; without axes it is a compile-time value."""

    name: Name
    axes: Axes | None
    dtype: Name | None
    default: Expr | None


# ---- expressions --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Number(Node):
    """`50_257`, `3e-4`, `300B`: an int where it was written as a whole number."""

    value: int | float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class String(Node):
    """Its value without quotes and escapes."""

    value: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Bool(Node):
    value: bool


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NoneLiteral(Node):
    pass


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Word(Node):
    """A word that is no name: `1f1b`."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Path(Node):
    """`x`, `train.lr.peak`."""

    parts: tuple[Name, ...]

    @property
    def text(self) -> str:
        return ".".join(part.text for part in self.parts)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ListExpr(Node):
    items: tuple[Expr, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Unary(Node):
    """`-x` or `not x`."""

    op: str
    operand: Expr


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Binary(Node):
    """`+ - * / // % ** == != < <= > >= and or`."""

    op: str
    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ternary(Node):
    """`then if condition else otherwise`."""

    then: Expr
    condition: Expr
    otherwise: Expr


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Arg(Node):
    """`x` or `name=x` inside a call."""

    name: Name | None
    value: Expr


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Call(Node):
    """`linear(x, bias=true) as out -> [b, s, d]`."""

    function: Path
    args: tuple[Arg, ...]
    layer: Name | None
    result: Axes | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pick(Node):
    """`s=0`: one index, the axis is gone."""

    axis: Name
    index: Expr


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Slice(Node):
    """`s=1:`, `s=:4`, `s=a:b`."""

    axis: Name
    start: Expr | None
    stop: Expr | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rename(Node):
    """`s as s'`."""

    axis: Name
    to: Name


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Index(Node):
    """`x[s=0]`, `x[s=1:, h as h']`."""

    value: Expr
    items: tuple[Pick | Slice | Rename, ...]


Expr = (
    Number
    | String
    | Bool
    | NoneLiteral
    | Word
    | Path
    | ListExpr
    | Unary
    | Binary
    | Ternary
    | Call
    | Index
)


# ---- statements ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Target(Node):
    """`x` or `x[b, s, d]` left of `=`."""

    name: Name
    axes: Axes | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Assign(Node):
    """`q, k, v = linear(x) -> [..], [..], [..]`.

    The first result type belongs to the call; `more_types` are the second and later ones.
    """

    targets: tuple[Target, ...]
    value: Expr
    more_types: tuple[Axes, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Return(Node):
    values: tuple[Expr, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Loss(Node):
    name: Name
    value: Expr


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Body(Node):
    """Statements between braces; the span includes the braces."""

    statements: tuple[Statement, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Repeat(Node):
    """`repeat i in layers shared { … }`."""

    index: Name | None
    count: Expr
    shared: bool
    body: Body


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class If(Node):
    """`else if` is an `otherwise` whose only statement is another If."""

    condition: Expr
    then: Body
    otherwise: Body | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Stage(Node):
    """A stage boundary: here, or after every n-th iteration."""

    every: Expr | None


Statement = Assign | Return | Loss | Repeat | If | Stage


# ---- sections -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Model(Node):
    name: Name


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Import(Node):
    names: tuple[Name, ...]
    path: String


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DimDecl(Node):
    """`s: seq = 1024`."""

    name: Name
    kind: Name | None
    size: Expr | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Dims(Node):
    decls: tuple[DimDecl, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Default(Node):
    """`default linear(bias=true)`."""

    primitive: Name
    args: tuple[Arg, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Block(Node):
    name: Name
    generics: tuple[Name, ...]
    params: tuple[Param, ...]
    results: tuple[ValueType, ...]
    body: Body


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Extern(Node):
    """`extern ema<s, d>(x[.., s, d]) -> [.., s, d] from "my_ops:ema" along d`."""

    name: Name
    generics: tuple[Name, ...]
    params: tuple[Param, ...]
    results: tuple[ValueType, ...]
    target: String
    along: tuple[Name, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Forward(Node):
    params: tuple[Param, ...]
    results: tuple[ValueType, ...]
    body: Body


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Segment(Node):
    """One step of a weight path: a name, `*`, or `(q, k, v)`."""

    names: tuple[str, ...]

    @property
    def is_star(self) -> bool:
        return self.names == ("*",)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LayoutGroup(Node):
    """`d` or `(_ heads hd)` in the layout of a stored tensor; `_` tells fused layers apart."""

    names: tuple[Name, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Entry(Node):
    """`attention.(q, k, v) = "attn.c_attn".T [d, (_ heads hd)] { … }`."""

    path: tuple[Segment, ...]
    path_span: Span
    target: String
    transposed: bool
    layout: tuple[LayoutGroup, ...] | None
    children: tuple[Entry, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Weights(Node):
    """`weights hf { … }` or `weights hf from "std/hf/gpt2"`: `entries` or `path` is None."""

    name: Name
    entries: tuple[Entry, ...] | None
    path: String | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Setting(Node):
    """`lr = cosine(peak=3e-4)`."""

    path: Path
    value: Expr


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Shard(Node):
    """`shard heads, ff on tp else s`."""

    axes: tuple[Name, ...]
    mesh: Name
    otherwise: Name | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Parallel(Node):
    entries: tuple[Shard | Setting, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Train(Node):
    settings: tuple[Setting, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Profile(Node):
    name: Name
    settings: tuple[Setting, ...]


Item = (
    Model
    | Import
    | Dims
    | Default
    | Block
    | Extern
    | Forward
    | Weights
    | Parallel
    | Train
    | Profile
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class File(Node):
    source: SourceFile
    items: tuple[Item, ...]
