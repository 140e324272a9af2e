"""The IR as text: for people to read, for tests of passes to write.

    program tiny "tiny.giant"
    axis d: feature = 64 ; 5

    function Tiny "tiny" (%x.0: [b, s, d]) returns (%y.1) { ; 8
      %y.1: [b, s, d] = linear(%x.0, contracted=[d], created=[d], square=true, per=[]) as y ; 9
        weight @y.weight: [d -> d] normal(0.02)
    }

A value is written where it is defined with its type, `%name.number`; numbers count per function;
`%x.3 as skip` has a second name.
A loop that runs the later part of its iterations says `first 4`. A function begins with the weights
of other stages that it holds, `hold @tok.weight: [vocab -> d] normal(0.02) of Other via decoder`.
A weight is written where its owner uses it, `@member.leaf`, `#2` behind the second of a name;
`tied @Other/tok.weight via decoder.attention` is another layer's. `; 9` is a line of the spec. Of a
span the text keeps the line. `text_parser.py` reads it back.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby

from giantdsl.attrs import Attr, Config
from giantdsl.ir.nodes import (
    Body,
    Call,
    Count,
    Function,
    Hold,
    Op,
    Program,
    Repeat,
    StageMark,
    Statement,
    Value,
    Weight,
    WeightUse,
    statements_of,
)
from giantdsl.ir.text_parser import parse_program
from giantdsl.ir.text_tokens import WORDS
from giantdsl.ir.types import Axis
from giantdsl.source import Span

__all__ = ["format_program", "parse_program"]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*'?")


def format_program(program: Program) -> str:
    """The whole program, deterministic, ending in a newline; `parse_program` reads it."""
    return _Writer(program).text()


def format_value(value: Attr) -> str:
    """An attribute such that its type can be told: words are strings, calls have brackets."""
    if isinstance(value, str):
        return value if _NAME.fullmatch(value) and value not in WORDS else _quoted(value)
    if isinstance(value, Config):
        parts = [*map(format_value, value.args)]
        parts += [f"{key}={format_value(v)}" for key, v in value.kwargs]
        return f"{value.name}({', '.join(parts)})"
    if isinstance(value, tuple):
        return f"[{', '.join(map(format_value, value))}]"
    if isinstance(value, bool):
        return "true" if value else "false"
    return "none" if value is None else repr(value)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _arguments(values: Sequence[tuple[str, Attr]]) -> list[str]:
    return [f"{key}={format_value(value)}" for key, value in values]


class _Writer:
    def __init__(self, program: Program) -> None:
        self._program = program
        self._file = program.span.source.name
        self._values: dict[int, str] = {}
        self._weights: dict[int, tuple[Function, str]] = {}
        self._function = program.forward
        for function in program.functions:
            self._name_weights(function)

    def text(self) -> str:
        program = self._program
        head = [f"program {program.model} {_quoted(self._file)}"]
        head += [self._axis(axis) for axis in program.axes.values()]
        head += [f"scalar {line}" for line in _arguments([*program.scalars.items()])]
        head += [f"extra {line}" for line in _arguments([*program.extra.items()])]
        for extern in program.externs.values():
            along = f" along {', '.join(extern.along)}" if extern.along else ""
            head.append(
                f"extern {extern.name} {_quoted(extern.target)}{along}{self._line(extern.span)}"
            )
        lines = [*head]
        for function in program.functions:
            lines += ["", *self._function_lines(function)]
        if program.counts:
            lines.append("")
        lines += [f"count {name} {self._count(c)}" for name, c in program.counts.items()]
        return "\n".join(lines) + "\n"

    def _axis(self, axis: Axis) -> str:
        size = "" if axis.size is None else f" = {axis.size}"
        logical = "" if axis.logical is None else f" logical {axis.logical}"
        factors = f" factors [{', '.join(axis.factors)}]" if axis.factors else ""
        terms = f" terms [{', '.join(axis.terms)}]" if axis.terms else ""
        kind = f"axis {axis.name}: {axis.kind.value}"
        return f"{kind}{size}{logical}{factors}{terms}{self._line(axis.span)}"

    def _count(self, count: Count) -> str:
        if count.kind == "rows":
            return "rows"
        parts = [self._optional(count.labels), f"ignore={format_value(count.ignore)}"]
        if count.weight is not None:
            parts.append(f"weight={self._values[id(count.weight)]}")
        return f"{count.kind}({', '.join(parts)})"

    def _line(self, span: Span) -> str:
        if span.source.name == self._file:
            return f" ; {span.line}"
        return f" ; {_quoted(span.source.name)} {span.line}"

    # ---- functions ------------------------------------------------------------------------

    def _name_weights(self, function: Function) -> None:
        seen: dict[str, int] = {}
        owned = [hold.weight for hold in function.holds]
        for statement in statements_of(function):
            uses = statement.weights if isinstance(statement, Op) else ()
            owned += [use.weight for use in uses if not use.tied]
        for weight in owned:
            if id(weight) not in self._weights:
                name = f"@{weight.member}.{weight.leaf}" if weight.leaf else f"@{weight.member}"
                seen[name] = seen.get(name, 0) + 1
                name += f"#{seen[name]}" if seen[name] > 1 else ""
                self._weights[id(weight)] = (function, name)

    def _function_lines(self, function: Function) -> Iterator[str]:
        self._function = function
        self._values_seen = 0
        params = [self._param(function, i) for i in range(len(function.params))]
        facts = ""
        if function.generics:
            facts += f" generics({', '.join(f'{k}={v}' for k, v in function.generics.items())})"
        if function.per:
            facts += f" per({', '.join(function.per)})"
        if function.static:
            facts += f" static({', '.join(_arguments([*function.static.items()]))})"
        facts += " draws" if function.draws else ""
        yield (
            f"function {function.symbol} {_quoted(function.name)} ({', '.join(params)})"
            f"{facts} {{{self._line(function.span)}"
        )
        for hold in function.holds:
            yield f"  {self._hold(hold)}"
        yield from self._statements(function.statements, "  ")
        yield f"  return {self._ends(function.results, function.losses)}"
        yield "}"

    def _hold(self, hold: Hold) -> str:
        function, name = self._weights[id(hold.weight)]
        where = "" if function is self._function else f"{function.symbol}/"
        of = f" of {hold.symbol}" if hold.symbol else ""
        via = f" via {'.'.join(hold.path)}" if hold.path else ""
        return f"hold @{where}{name[1:]}: {_weight(hold.weight)}{of}{via}"

    def _param(self, function: Function, i: int) -> str:
        flags = " optional" if i in function.optional else ""
        flags += " loss_only" if i in function.loss_only else ""
        return self._define(function.params[i]) + flags

    def _ends(self, values: Sequence[Value], losses: Sequence[tuple[str, Value]]) -> str:
        """`(%x.3) losses(lm=%lm.4)`: what a function returns or a body yields."""
        shown = f"({', '.join(self._values[id(v)] for v in values)})"
        if losses:
            shown += f" losses({', '.join(f'{n}={self._values[id(v)]}' for n, v in losses)})"
        return shown

    # ---- statements -----------------------------------------------------------------------

    def _statements(self, statements: Sequence[Statement], indent: str) -> Iterator[str]:
        for statement in statements:
            if isinstance(statement, Op):
                yield from self._op(statement, indent)
            elif isinstance(statement, Call):
                yield indent + self._call(statement)
            elif isinstance(statement, Repeat):
                yield from self._repeat(statement, indent)
            elif isinstance(statement, StageMark):
                yield f"{indent}stage{self._line(statement.span)}"

    def _op(self, op: Op, indent: str) -> Iterator[str]:
        given = [self._values[id(v)] for v in op.inputs] + _arguments([*op.attrs.items()])
        layer = f" as {op.layer}" if op.layer else ""
        fuse = f" fuse {op.fuse}" if op.fuse is not None else ""
        made = ", ".join(self._define(v) for v in op.results)
        yield (
            f"{indent}{made} = {op.kind}({', '.join(given)}){layer}{fuse}"
            f"{_site(op.site)}{self._line(op.span)}"
        )
        for use in op.weights:
            yield f"{indent}  {self._use(use)}"

    def _use(self, use: WeightUse) -> str:
        function, name = self._weights[id(use.weight)]
        if not use.tied:
            return f"{use.role} {name}: {_weight(use.weight)}"
        where = "" if function is self._function else f"{function.symbol}/"
        steps = [f"{m}[{', '.join(map(str, at))}]" if at else m for m, at in use.path]
        via = f" via {'.'.join(steps)}" if steps else ""
        at = f" at [{', '.join(map(str, use.indices))}]" if use.indices else ""
        return f"{use.role} tied @{where}{name[1:]}{via}{at}"

    def _call(self, call: Call) -> str:
        given = ", ".join(self._optional(v) for v in call.inputs)
        made = ", ".join(self._define(v) for v in call.results)
        terms = f" losses({', '.join(self._define(v) for v in call.losses)})" if call.losses else ""
        return (
            f"{made} = call {call.function.symbol}({given}) as {call.member}{terms}"
            f"{_site(call.site)}{self._line(call.span)}"
        )

    def _repeat(self, loop: Repeat, indent: str) -> Iterator[str]:
        inits = f"({', '.join(self._values[id(v)] for v in loop.inits)})"
        facts = f" index {loop.index}" if loop.index else ""
        facts += f" first {loop.first}" if loop.first else ""
        facts += " shared" if loop.shared else ""
        facts += f" every {loop.every}" if loop.every else ""
        runs = [f"{variant}*{len([*same])}" for variant, same in groupby(loop.pattern)]
        yield (
            f"{indent}repeat {loop.count} from {inits}{facts} pattern [{', '.join(runs)}]"
            f"{_site(loop.site)} {{{self._line(loop.span)}"
        )
        for body in loop.bodies:
            yield from self._body(body, indent + "  ")
        made = f"({', '.join(self._define(v) for v in loop.results)})"
        if loop.losses:
            terms = (f"{name}={self._define(v)}" for name, v in loop.losses)
            made += f" losses({', '.join(terms)})"
        yield f"{indent}}} -> {made}"

    def _body(self, body: Body, indent: str) -> Iterator[str]:
        yield f"{indent}body ({', '.join(self._define(v) for v in body.params)}) {{"
        yield from self._statements(body.statements, indent + "  ")
        yield f"{indent}  yield {self._ends(body.yields, body.losses)}"
        yield f"{indent}}}"

    # ---- values ---------------------------------------------------------------------------

    def _define(self, value: Value) -> str:
        number = self._values_seen
        self._values_seen += 1
        name = f"%{value.name}.{number}" if value.name else f"%{number}"
        self._values[id(value)] = name
        alias = f" as {value.alias}" if value.alias else ""
        return f"{name}{alias}: {value.type}"

    def _optional(self, value: Value | None) -> str:
        return "none" if value is None else self._values[id(value)]


def _site(site: int | None) -> str:
    return "" if site is None else f" site {site}"


def _weight(weight: Weight) -> str:
    """`[d -> heads, hd] per [experts] table normal(0.02) lr 0.1 decay false dtype float32`."""
    into = f"{', '.join(weight.in_axes)} -> " if weight.in_axes else ""
    shown = f"[{into}{', '.join(weight.out_axes)}]"
    shown += f" per [{', '.join(weight.per)}]" if weight.per else ""
    out_first = (*weight.per, *weight.out_axes, *weight.in_axes)
    shown += " table" if weight.axes != out_first else ""
    shown += f" {weight.init.kind}({weight.init.value!r})"
    shown += f" lr {weight.lr!r}" if weight.lr != 1.0 else ""
    shown += f" decay {format_value(weight.decay)}" if weight.decay is not None else ""
    shown += f" dtype {weight.dtype}" if weight.dtype is not None else ""
    return shown
