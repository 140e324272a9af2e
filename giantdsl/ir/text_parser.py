"""Reads the text form of the IR that `text.py` writes (its grammar is shown there)."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TypeVar

from giantdsl.attrs import Attr
from giantdsl.ir.nodes import (
    Body,
    Call,
    Count,
    Extern,
    Function,
    Hold,
    Init,
    Op,
    Program,
    Repeat,
    StageMark,
    Statement,
    Value,
    Weight,
    WeightUse,
)
from giantdsl.ir.text_tokens import Tokens
from giantdsl.ir.types import FLOAT, Axis, AxisKind, TensorType
from giantdsl.source import Span

_T = TypeVar("_T")


def parse_program(text: str) -> Program:
    """The program a text describes; every span is the whole of its line of the spec.

    Raises IrSyntaxError.
    """
    return _Reader(text).program()


class _Reader(Tokens):
    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._functions: dict[str, Function] = {}
        self._weights: dict[str, Weight] = {}
        self._values: dict[str, Value] = {}
        self._symbol = ""
        self._owned: list[Weight] = []

    # ---- the program ----------------------------------------------------------------------

    def program(self) -> Program:
        self.expect("program")
        model, file = self.word(), self.string()
        start = self.open_sources(file).span(0, 0)
        program = Program(model, {}, {}, [], {}, {}, start)
        while not self.at_end:
            word = self.word("a section")
            if word == "axis":
                axis = self._axis()
                program.axes[axis.name] = axis
            elif word == "scalar":
                program.scalars.update([self.pair()])
            elif word == "extra":
                program.extra.update([self.pair()])
            elif word == "extern":
                extern = self._extern()
                program.externs[extern.name] = extern
            elif word == "function":
                program.functions.append(self._function())
            elif word == "count":
                name = self.word()
                program.counts[name] = self._count()
            else:
                self.back()
                self.fail("axis, scalar, extra, extern, function or count")
        return program

    def _axis(self) -> Axis:
        span = self.span()
        name = self.word()
        self.expect(":")
        kind = self._kind()
        size = self.whole() if self.accept("=") else None
        logical = self.whole() if self.accept("logical") else None
        factors = self.words() if self.accept("factors") else ()
        terms = self.words() if self.accept("terms") else ()
        self.end_line()
        return Axis(name, kind, size, logical, factors, terms, span)

    def _kind(self) -> AxisKind:
        kinds = {kind.value: kind for kind in AxisKind}
        if self.peek() not in kinds:
            self.fail(f"one of {', '.join(kinds)}")
        return kinds[self.word()]

    def _extern(self) -> Extern:
        span = self.span()
        name, target = self.word(), self.string()
        along: list[str] = []
        if self.accept("along"):
            along.append(self.word())
            while self.accept(","):
                along.append(self.word())
        self.end_line()
        return Extern(name, target, tuple(along), span)

    def _count(self) -> Count:
        if self.accept("rows"):
            return Count("rows")
        self.expect("valid")
        self.expect("(")
        labels = self._optional()
        self.expect(",")
        ignore = self.pair()[1]
        weight = None
        if self.accept(","):
            self.expect("weight")
            self.expect("=")
            weight = self._use_value()
        self.expect(")")
        assert ignore is None or isinstance(ignore, int)
        return Count("valid", labels, ignore, weight)

    # ---- functions ------------------------------------------------------------------------

    def _function(self) -> Function:
        span = self.span()
        self._values, self._owned = {}, []
        symbol, name = self.word(), self.string()
        optional: set[int] = set()
        loss_only: set[int] = set()
        position = itertools.count()

        def param() -> Value:
            i = next(position)
            value = self._define(span)
            optional.update([i] if self.accept("optional") else [])
            loss_only.update([i] if self.accept("loss_only") else [])
            return value

        params = self.listed("(", ")", param)
        generics = dict(self._named(self.word)) if self.accept("generics") else {}
        per = self.listed("(", ")", self.word) if self.accept("per") else ()
        static = dict(self._named(self.attr)) if self.accept("static") else {}
        draws = self.accept("draws")
        self.expect("{")
        self.end_line()
        self._symbol = symbol
        holds: list[Hold] = []
        while self.accept("hold"):
            holds.append(self._hold(span))
        statements = self._statements("return")
        results, losses = self._ends()
        self.expect("}")
        function = Function(
            name=name,
            symbol=symbol,
            params=params,
            optional=frozenset(optional),
            loss_only=frozenset(loss_only),
            results=results,
            losses=losses,
            statements=statements,
            weights=self._owned,
            static=static,
            generics=generics,
            per=per,
            draws=draws,
            span=span,
            holds=tuple(holds),
        )
        self._functions[symbol] = function
        return function

    def _hold(self, span: Span) -> Hold:
        name = self.take("weight", "`@layer.weight`")[1:]
        key = name if "/" in name else f"{self._symbol}/{name}"
        self.expect(":")
        weight = self._weight(f"@{name.rpartition('/')[2]}", span)
        # A weight that a function here owns too was read there.
        weight = self._weights.setdefault(key, weight)
        symbol = self.word("a function") if self.accept("of") else ""
        path: list[str] = []
        if self.accept("via"):
            path.append(self.word("a layer"))
            while self.accept("."):
                path.append(self.word("a layer"))
        return Hold(weight, symbol, tuple(path))

    def _ends(self) -> tuple[tuple[Value, ...], tuple[tuple[str, Value], ...]]:
        values = self.listed("(", ")", self._use_value)
        losses = self._named(self._use_value) if self.accept("losses") else ()
        return values, losses

    def _named(self, read: Callable[[], _T]) -> tuple[tuple[str, _T], ...]:
        """`(name=…, name=…)`."""

        def one() -> tuple[str, _T]:
            name = self.word()
            self.expect("=")
            return name, read()

        return self.listed("(", ")", one)

    # ---- statements -----------------------------------------------------------------------

    def _statements(self, end: str) -> list[Statement]:
        found: list[Statement] = []
        while not self.accept(end):
            span = self.span()
            if self.accept("stage"):
                self.end_line()
                found.append(StageMark(span))
            elif self.accept("repeat"):
                found.append(self._repeat(span))
            else:
                found.append(self._op_or_call(span))
        return found

    def _op_or_call(self, span: Span) -> Statement:
        results = [self._define(span)]
        while self.accept(","):
            results.append(self._define(span))
        self.expect("=")
        if self.accept("call"):
            return self._call(tuple(results), span)
        kind = self.word("an operation")
        inputs: list[Value] = []
        attrs: dict[str, Attr] = {}

        def argument() -> None:
            if self.peek().startswith("%"):
                inputs.append(self._use_value())
            else:
                attrs.update([self.pair()])

        self.listed("(", ")", argument)
        layer = self.word() if self.accept("as") else ""
        fuse = self.whole() if self.accept("fuse") else None
        site = self.whole() if self.accept("site") else None
        self.end_line()
        uses: list[WeightUse] = []
        while self.peek(1).startswith("@") or self.peek(1) == "tied":
            uses.append(self._use(span))
        return Op(kind, tuple(inputs), tuple(results), attrs, tuple(uses), layer, span, fuse, site)

    def _call(self, results: tuple[Value, ...], span: Span) -> Call:
        symbol = self.word("a function")
        if symbol not in self._functions:
            self.back()
            self.fail("a function that is defined above")
        inputs = self.listed("(", ")", self._optional)
        self.expect("as")
        member = self.word()
        losses: tuple[Value, ...] = ()
        if self.accept("losses"):
            losses = self.listed("(", ")", lambda: self._define(span))
        site = self.whole() if self.accept("site") else None
        self.end_line()
        return Call(self._functions[symbol], inputs, results, losses, member, span, site)

    def _repeat(self, span: Span) -> Repeat:
        count = self.whole()
        self.expect("from")
        inits = self.listed("(", ")", self._use_value)
        index = self.word() if self.accept("index") else ""
        first = self.whole() if self.accept("first") else 0
        shared = self.accept("shared")
        every = self.whole() if self.accept("every") else 0
        self.expect("pattern")
        runs = self.listed("[", "]", self._run)
        site = self.whole() if self.accept("site") else None
        self.expect("{")
        self.end_line()
        bodies: list[Body] = []
        while not self.accept("}"):
            bodies.append(self._body(span))
        self.expect("->")
        results = self.listed("(", ")", lambda: self._define(span))
        losses: tuple[tuple[str, Value], ...] = ()
        if self.accept("losses"):
            losses = self._named(lambda: self._define(span))
        return Repeat(
            index,
            count,
            shared,
            tuple(bodies),
            sum(runs, ()),
            inits,
            results,
            losses,
            every,
            span,
            site,
            first,
        )

    def _run(self) -> tuple[int, ...]:
        variant = self.whole()
        self.expect("*")
        return (variant,) * self.whole()

    def _body(self, span: Span) -> Body:
        self.expect("body")
        params = self.listed("(", ")", lambda: self._define(span))
        self.expect("{")
        statements = self._statements("yield")
        yields, losses = self._ends()
        self.expect("}")
        return Body(params, statements, yields, losses)

    # ---- weights --------------------------------------------------------------------------

    def _use(self, span: Span) -> WeightUse:
        role = self.word()
        if not self.accept("tied"):
            name = self.take("weight", "`@layer.weight`")
            self.expect(":")
            weight = self._weight(name, span)
            self._weights[f"{self._symbol}/{name[1:]}"] = weight
            self._owned.append(weight)
            return WeightUse(role, weight)
        name = self.take("weight", "`@layer.weight`")[1:]
        owner = name if "/" in name else f"{self._symbol}/{name}"
        if owner not in self._weights:
            self.back()
            self.fail("a weight that is written above")
        path: list[tuple[str, tuple[int, ...]]] = []
        if self.accept("via"):
            path.append(self._step())
            while self.accept("."):
                path.append(self._step())
        indices = self.listed("[", "]", self.whole) if self.accept("at") else ()
        return WeightUse(role, self._weights[owner], True, tuple(path), indices)

    def _step(self) -> tuple[str, tuple[int, ...]]:
        member = self.word()
        return member, self.listed("[", "]", self.whole) if self.peek() == "[" else ()

    def _weight(self, name: str, span: Span) -> Weight:
        member, _, leaf = name[1:].partition("#")[0].partition(".")
        self.expect("[")
        first = self._until_bracket()
        into: tuple[str, ...] = ()
        out = first
        if self.accept("->"):
            into, out = first, self._until_bracket()
        self.expect("]")
        per = self.words() if self.accept("per") else ()
        table = self.accept("table")
        kind = self.word("an initial value")
        self.expect("(")
        init = Init(kind, self.number())
        self.expect(")")
        lr = self.number() if self.accept("lr") else 1.0
        decay = self.attr() if self.accept("decay") else None
        dtype = self.word() if self.accept("dtype") else None
        axes = (*per, *into, *out) if table else (*per, *out, *into)
        assert decay is None or isinstance(decay, bool)
        return Weight(member, leaf, axes, per, out, into, init, lr, decay, dtype, span)

    def _until_bracket(self) -> tuple[str, ...]:
        found: list[str] = []
        while self.peek() not in ("]", "->"):
            if found:
                self.expect(",")
            found.append(self.word("an axis"))
        return tuple(found)

    # ---- values and attributes ------------------------------------------------------------

    def _define(self, span: Span) -> Value:
        token = self.take("value", "a value, `%name.0`")
        name = token[1:].rpartition(".")[0]
        alias = self.word() if self.accept("as") else ""
        self.expect(":")
        value = Value(name, self._type(), span, alias)
        self._values[token] = value
        return value

    def _type(self) -> TensorType:
        at: list[tuple[str, str]] = []

        def axis() -> str:
            name = self.word("an axis")
            if self.peek().startswith("@"):
                at.append((name, self.take("weight", "a mesh axis")[1:]))
            return name

        axes = self.listed("[", "]", axis)
        dtype = self.word("a type") if self.accept(":") else FLOAT
        return TensorType(axes, dtype, tuple(at))

    def _use_value(self) -> Value:
        token = self.take("value", "a value, `%name.0`")
        if token not in self._values:
            self.back()
            self.fail("a value that is defined above")
        return self._values[token]

    def _optional(self) -> Value | None:
        return None if self.accept("none") else self._use_value()
