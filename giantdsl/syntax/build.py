"""Reductions to tree nodes: one function a rule of `giant.lark`, named like the rule.

Each gets the values of the symbols the rule keeps (tokens or nodes, None for an optional part
that is not there) and the span of all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from giantdsl.diagnostics import Diagnostic, Fix, Label, Sink
from giantdsl.source import SourceFile, Span
from giantdsl.syntax import ast, literals
from giantdsl.syntax.tokens import KEYWORD_KINDS, WORDS, Token

# Literals of other languages, and what they are here.
FOREIGN_LITERALS = {
    "True": "true",
    "False": "false",
    "None": "none",
    "null": "none",
    "nil": "none",
}

Action = Callable[[list[Any], Span], Any]


class Builder:
    """Makes the tree of one file. Faults of single literals go to the sink."""

    def __init__(self, source: SourceFile, sink: Sink) -> None:
        self._source = source
        self._text = source.text
        self._sink = sink
        self.actions: dict[str, Action] = {
            name: getattr(self, name)
            for name in dir(self)
            if not name.startswith("_") and name != "actions"
        }

    def _span(self, token: Token) -> Span:
        return Span(self._source, token.start, token.end)

    def _name(self, token: Token) -> ast.Name:
        """A name of the user's; a keyword cannot be one."""
        if token.kind != "NAME" and token.kind in KEYWORD_KINDS:
            self._sink.add(
                Diagnostic(
                    "G006",
                    "a keyword cannot be a name",
                    Label(self._span(token), "a keyword"),
                    "pick another name",
                )
            )
        return self._word(token)

    def _word(self, token: Token) -> ast.Name:
        """A name that may be spelt like a keyword: it is looked up, not declared."""
        return ast.Name(span=self._span(token), text=self._text[token.start : token.end])

    def _optional(self, token: Token | None) -> ast.Name | None:
        return None if token is None else self._name(token)

    def _names(self, tokens: list[Token]) -> tuple[ast.Name, ...]:
        return tuple(self._name(token) for token in tokens)

    def _string(self, token: Token) -> ast.String:
        value = literals.string_value(self._source, token, self._sink)
        return ast.String(span=self._span(token), value=value)

    # ---- the file ---------------------------------------------------------------------------

    def start(self, values: list[Any], span: Span) -> tuple[ast.Item, ...]:
        return tuple(values)

    def model(self, values: list[Any], span: Span) -> ast.Model:
        return ast.Model(span=span, name=self._name(values[0]))

    def import_(self, values: list[Any], span: Span) -> ast.Import:
        return ast.Import(span=span, names=self._names(values[:-1]), path=self._string(values[-1]))

    def default(self, values: list[Any], span: Span) -> ast.Default:
        return ast.Default(span=span, primitive=self._name(values[0]), args=tuple(values[1:]))

    def dims(self, values: list[Any], span: Span) -> ast.Dims:
        return ast.Dims(span=span, decls=tuple(values))

    def dim(self, values: list[Any], span: Span) -> ast.DimDecl:
        name, kind, size = values
        return ast.DimDecl(span=span, name=self._name(name), kind=self._optional(kind), size=size)

    # ---- blocks -----------------------------------------------------------------------------

    def block(self, values: list[Any], span: Span) -> ast.Block:
        name, generics, params, results, body = values
        return ast.Block(
            span=span,
            name=self._name(name),
            generics=generics or (),
            params=params or (),
            results=results,
            body=body,
        )

    def extern(self, values: list[Any], span: Span) -> ast.Extern:
        name, generics, params, results, target, along = values
        return ast.Extern(
            span=span,
            name=self._name(name),
            generics=generics or (),
            params=params or (),
            results=results,
            target=self._string(target),
            along=along or (),
        )

    def forward(self, values: list[Any], span: Span) -> ast.Forward:
        params, results, body = values
        return ast.Forward(span=span, params=params or (), results=results, body=body)

    def generics(self, values: list[Any], span: Span) -> tuple[ast.Name, ...]:
        return self._names([token for token in values if self._text[token.start] not in "<>"])

    def along(self, values: list[Any], span: Span) -> tuple[ast.Name, ...]:
        return self._names(values)

    def params(self, values: list[Any], span: Span) -> tuple[ast.Param, ...]:
        return tuple(values)

    def param(self, values: list[Any], span: Span) -> ast.Param:
        name, axes, dtype, default = values
        return ast.Param(
            span=span,
            name=self._name(name),
            axes=axes,
            dtype=self._optional(dtype),
            default=default,
        )

    def types(self, values: list[Any], span: Span) -> tuple[ast.ValueType, ...]:
        return tuple(values)

    def type(self, values: list[Any], span: Span) -> ast.ValueType:
        return ast.ValueType(span=span, axes=values[0], dtype=self._optional(values[1]))

    def axes(self, values: list[Any], span: Span) -> ast.Axes:
        return ast.Axes(span=span, axes=tuple(values))

    def axis(self, values: list[Any], span: Span) -> ast.AxisRef:
        return ast.AxisRef(span=span, name=self._name(values[0]), mesh=self._optional(values[1]))

    def rest(self, values: list[Any], span: Span) -> ast.RestAxes:
        return ast.RestAxes(span=span)

    # ---- statements -------------------------------------------------------------------------

    def body(self, values: list[Any], span: Span) -> ast.Body:
        return ast.Body(span=span, statements=tuple(values))

    def assign(self, values: list[Any], span: Span) -> ast.Assign:
        targets, value, more = values
        return ast.Assign(span=span, targets=targets, value=value, more_types=more)

    def targets(self, values: list[Any], span: Span) -> tuple[ast.Target, ...]:
        return tuple(values)

    def target(self, values: list[Any], span: Span) -> ast.Target:
        return ast.Target(span=span, name=self._name(values[0]), axes=values[1])

    def more(self, values: list[Any], span: Span) -> tuple[ast.Axes, ...]:
        return tuple(values)

    def return_(self, values: list[Any], span: Span) -> ast.Return:
        return ast.Return(span=span, values=tuple(values))

    def loss(self, values: list[Any], span: Span) -> ast.Loss:
        return ast.Loss(span=span, name=self._name(values[0]), value=values[1])

    def repeat(self, values: list[Any], span: Span) -> ast.Repeat:
        index, count, shared, body = values
        return ast.Repeat(
            span=span,
            index=self._optional(index),
            count=count,
            shared=shared is not None,
            body=body,
        )

    def if_(self, values: list[Any], span: Span) -> ast.If:
        condition, then, otherwise = values
        if isinstance(otherwise, ast.If):
            otherwise = ast.Body(span=otherwise.span, statements=(otherwise,))
        return ast.If(span=span, condition=condition, then=then, otherwise=otherwise)

    def stage(self, values: list[Any], span: Span) -> ast.Stage:
        return ast.Stage(span=span, every=values[0])

    # ---- expressions ------------------------------------------------------------------------

    def ternary(self, values: list[Any], span: Span) -> ast.Ternary:
        then, condition, otherwise = values
        return ast.Ternary(span=span, then=then, condition=condition, otherwise=otherwise)

    def binary(self, values: list[Any], span: Span) -> ast.Binary:
        left, op, right = values
        return ast.Binary(span=span, op=self._text[op.start : op.end], left=left, right=right)

    def unary(self, values: list[Any], span: Span) -> ast.Unary:
        op, operand = values
        return ast.Unary(span=span, op=self._text[op.start : op.end], operand=operand)

    def at(self, values: list[Any], span: Span) -> ast.Index:
        return ast.Index(span=span, value=values[0], items=tuple(values[1:]))

    def pick(self, values: list[Any], span: Span) -> ast.Pick:
        return ast.Pick(span=span, axis=self._name(values[0]), index=values[1])

    def slice(self, values: list[Any], span: Span) -> ast.Slice:
        axis, start, stop = values
        return ast.Slice(span=span, axis=self._name(axis), start=start, stop=stop)

    def rename(self, values: list[Any], span: Span) -> ast.Rename:
        return ast.Rename(span=span, axis=self._name(values[0]), to=self._name(values[1]))

    def number(self, values: list[Any], span: Span) -> ast.Number:
        return ast.Number(
            span=span, value=literals.number_value(self._source, values[0], self._sink)
        )

    def string(self, values: list[Any], span: Span) -> ast.String:
        return self._string(values[0])

    def true(self, values: list[Any], span: Span) -> ast.Bool:
        return ast.Bool(span=span, value=True)

    def false(self, values: list[Any], span: Span) -> ast.Bool:
        return ast.Bool(span=span, value=False)

    def none(self, values: list[Any], span: Span) -> ast.NoneLiteral:
        return ast.NoneLiteral(span=span)

    def word(self, values: list[Any], span: Span) -> ast.Word:
        return ast.Word(span=span, text=span.text)

    def items(self, values: list[Any], span: Span) -> ast.ListExpr:
        return ast.ListExpr(span=span, items=tuple(values))

    def path(self, values: list[Any], span: Span) -> ast.Path:
        return ast.Path(span=span, parts=tuple(self._word(token) for token in values))

    def read(self, values: list[Any], span: Span) -> ast.Expr:
        """A path as a value: no keyword, and no literal of another language."""
        path: ast.Path = values[0]
        word = path.parts[0].text
        if len(path.parts) == 1:
            if word in WORDS:
                self._name(Token(WORDS[word], span.start, span.end))
            elif word in FOREIGN_LITERALS:
                return self._foreign_literal(word, span)
        return path

    def _foreign_literal(self, word: str, span: Span) -> ast.Expr:
        wanted = FOREIGN_LITERALS[word]
        self._sink.add(
            Diagnostic(
                "G021",
                f"`{word}` is written `{wanted}`",
                Label(span, f"`{wanted}`?"),
                f"write `{wanted}`",
                fixes=(Fix(span, wanted),),
            )
        )
        if wanted == "none":
            return ast.NoneLiteral(span=span)
        return ast.Bool(span=span, value=wanted == "true")

    def call(self, values: list[Any], span: Span) -> ast.Call:
        return ast.Call(
            span=span,
            function=values[0],
            args=tuple(values[1:-2]),
            layer=self._optional(values[-2]),
            result=values[-1],
        )

    def arg(self, values: list[Any], span: Span) -> ast.Arg:
        return ast.Arg(span=span, name=None, value=values[0])

    def kwarg(self, values: list[Any], span: Span) -> ast.Arg:
        return ast.Arg(span=span, name=self._word(values[0]), value=values[1])

    # ---- the plan, the run, the checkpoint map ----------------------------------------------

    def parallel(self, values: list[Any], span: Span) -> ast.Parallel:
        return ast.Parallel(span=span, entries=tuple(values))

    def shard(self, values: list[Any], span: Span) -> ast.Shard:
        axes, mesh, otherwise = values
        return ast.Shard(
            span=span, axes=axes, mesh=self._name(mesh), otherwise=self._optional(otherwise)
        )

    def shard_axes(self, values: list[Any], span: Span) -> tuple[ast.Name, ...]:
        return self._names(values)

    def train(self, values: list[Any], span: Span) -> ast.Train:
        return ast.Train(span=span, settings=tuple(values))

    def profile(self, values: list[Any], span: Span) -> ast.Profile:
        return ast.Profile(span=span, name=self._name(values[0]), settings=tuple(values[1:]))

    def setting(self, values: list[Any], span: Span) -> ast.Setting:
        return ast.Setting(span=span, path=values[0], value=values[1])

    def weights_map(self, values: list[Any], span: Span) -> ast.Weights:
        return ast.Weights(span=span, name=self._name(values[0]), entries=values[1], path=None)

    def weights_from(self, values: list[Any], span: Span) -> ast.Weights:
        return ast.Weights(
            span=span, name=self._name(values[0]), entries=None, path=self._string(values[1])
        )

    def mapping(self, values: list[Any], span: Span) -> tuple[ast.Entry, ...]:
        return tuple(values)

    def entry(self, values: list[Any], span: Span) -> ast.Entry:
        (path, path_span), target, transposed, layout, children = values
        return ast.Entry(
            span=span,
            path=path,
            path_span=path_span,
            target=self._string(target),
            transposed=transposed is not None,
            layout=layout,
            children=children,
        )

    def wpath(self, values: list[Any], span: Span) -> tuple[tuple[ast.Segment, ...], Span]:
        return tuple(values), span

    def segment(self, values: list[Any], span: Span) -> ast.Segment:
        return ast.Segment(span=span, names=(span.text,))

    def several(self, values: list[Any], span: Span) -> ast.Segment:
        return ast.Segment(span=span, names=tuple(self._word(token).text for token in values))

    def layout(self, values: list[Any], span: Span) -> tuple[ast.LayoutGroup, ...]:
        return tuple(values)

    def single(self, values: list[Any], span: Span) -> ast.LayoutGroup:
        return ast.LayoutGroup(span=span, names=self._names(values))

    def merged(self, values: list[Any], span: Span) -> ast.LayoutGroup:
        return ast.LayoutGroup(span=span, names=self._names(values))
