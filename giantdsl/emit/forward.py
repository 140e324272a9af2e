"""The forward pass of one function, statement by statement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from giantdsl.emit import elementwise, layers, special
from giantdsl.emit.code import SUM, Code, reads_of
from giantdsl.emit.guards import Guards
from giantdsl.emit.members import member_names
from giantdsl.emit.scope import Scope
from giantdsl.emit.slices import CONVERSIONS, convert
from giantdsl.ir.nodes import (
    Body,
    Call,
    Op,
    Repeat,
    StageMark,
    Statement,
    Value,
    written_together,
)

RENDER: dict[str, elementwise.Render] = {
    "linear": layers.linear,
    "embedding": layers.embedding,
    "layernorm": layers.norm,
    "rmsnorm": layers.norm,
    "param": layers.param,
    "relative_bias": layers.relative_bias,
    "positions": special.positions,
    "alibi": special.alibi,
    "sdpa": special.sdpa,
    "rope": special.rope,
    **dict.fromkeys(elementwise.UNARY_CALLS, elementwise.unary),
    **dict.fromkeys(("softcap", "scale", "shift", "power", "rdiv"), elementwise.with_number),
    **dict.fromkeys(elementwise.BINARY_SIGNS, elementwise.two),
    "where": elementwise.where,
    "dropout": elementwise.dropout,
    "softmax": elementwise.softmax,
    **dict.fromkeys(("mean", "sum", "max"), elementwise.reduce),
    "pick": elementwise.pick,
    "slice": elementwise.slice_,
    "rename": elementwise.rename,
    "permute": elementwise.permute,
    "expand": elementwise.expand,
    "concat": elementwise.concat,
    "rearrange": elementwise.rearrange,
    "topk": special.topk,
    "dispatch": special.routed,
    "combine": special.routed,
    "load_balance": special.load_balance,
    "cross_entropy": special.cross_entropy,
    "z_loss": special.z_loss,
    "mse": special.mse,
    "extern": special.extern,
    **dict.fromkeys(CONVERSIONS, convert),
    "cached_sdpa": special.cached_sdpa,
    "cached_rope": special.rope,
    "cached_positions": special.cached_positions,
}


@dataclass(frozen=True, slots=True)
class Callee:
    """How a function is called: parameters by keyword, and whether it is recomputed."""

    keywords: frozenset[int]
    recompute: bool


class ForwardWriter:
    """Writes statements into a scope. `callees` by id of the function."""

    def __init__(self, scope: Scope, callees: dict[int, Callee], guards: Guards) -> None:
        self.scope, self.callees, self.guards = scope, callees, guards
        self._loops = 0

    def run(self, statements: Sequence[Statement]) -> None:
        """The function's statements, those that only losses need behind a condition."""
        for guard, group in self.guards.groups(statements):
            if not guard:
                self.statements(group)
                continue
            self.scope.settle()
            self.scope.write(f"if {' and '.join(f'{name} is not None' for name in guard)}:")
            self.scope.depth += 1
            self.statements(group)
            self.guards.finish(self.scope, guard)
            self.scope.depth -= 1

    def statements(self, statements: Sequence[Statement]) -> None:
        for group in written_together(statements):
            statement = group[0]
            self.scope.at = statement.span
            if isinstance(statement, Op):
                self.op([op for op in group if isinstance(op, Op)])
            elif isinstance(statement, Call):
                self.call(statement)
            elif isinstance(statement, Repeat):
                self.repeat(statement)
            else:
                assert isinstance(statement, StageMark)

    def op(self, group: Sequence[Op]) -> None:
        op = group[0]
        if len(group) > 1:
            layers.fused_linear(self.scope, group)
            return
        code = RENDER[op.kind](self.scope, op)
        if len(op.results) > 1:
            self._unpack(op.results, code)
        elif self._stays(op, code):
            self.scope.bind(op.result, code.text)
        else:
            self.scope.define(op.result, code)

    def _stays(self, op: Op, code: Code) -> bool:
        """Whether the result can be what the input's variable holds: an axis renamed is no work."""
        is_same = op.kind == "rename" and code.is_name and op.result.name in ("", code.text)
        return is_same and not self.scope.is_overwritten(op.result)

    def call(self, call: Call) -> None:
        callee = self.callees[id(call.function)]
        args: list[str] = []
        named: list[str] = []
        codes: list[Code] = []
        for i, value in enumerate(call.inputs):
            code = self.scope.code(value) if value is not None else Code("None")
            codes.append(code)
            if i in callee.keywords:
                named.append(f"{self.scope.name_for(call.function.params[i].name)}={code.text}")
            else:
                args.append(code.text)
        if call.function.draws:
            args.append(f"fold({self.scope.noise}, {call.site})")
        layer = self.scope.member(call.member)
        if callee.recompute:
            layer, args = "recomputed", [layer, *args]
        made = Code(f"{layer}({', '.join([*args, *named])})", reads_of(codes))
        outs = (*call.results, *call.losses)
        if len(outs) == 1:
            self.scope.define(outs[0], made)
        else:
            self._unpack(outs, made)

    def _unpack(self, outs: Sequence[Value], made: Code) -> None:
        """Several results at once, each in a variable."""
        names: list[str] = []
        for value in outs:
            taken = self.scope.new_name(f"{value.name}_term" if value.name else "h")
            is_result = value.name and all(value.name != name for name in names)
            names.append(self.scope.variable_of(value) if is_result and value.type.axes else taken)
        for name in names:
            self.scope.before_change(name)
        self.scope.write(f"{', '.join(names)} = {made.text}")
        for value, name in zip(outs, names, strict=True):
            self.scope.bind(value, name)

    # ---- loops ----------------------------------------------------------------------------

    def repeat(self, loop: Repeat) -> None:
        scope = self.scope
        self._enter_carried(loop)
        scope.settle()
        for name, total in loop.losses:
            variable = scope.new_name(name)
            scope.write(f"{variable} = 0.0")
            scope.bind(total, variable)
        outer = dict(scope.members), scope.noise, scope.snapshot()
        bodies = merge_bodies(loop)
        self._head(loop, len(bodies) > 1)
        scope.depth += 1
        for k, body in enumerate(bodies):
            if len(bodies) > 1:
                scope.write(_condition(loop, k, len(bodies), scope.indices[self._loops - 1]))
                scope.depth += 1
            scope.restore(outer[2])
            before = len(scope.lines)
            self._body(loop, body)
            if len(scope.lines) == before:
                scope.write("pass")
            scope.depth -= len(bodies) > 1
        scope.depth -= 1
        self._loops -= 1
        scope.members, scope.noise = outer[0], outer[1]
        scope.restore(outer[2])
        scope.keep(loop.results)

    def _enter_carried(self, loop: Repeat) -> None:
        for init, result in zip(loop.inits, loop.results, strict=True):
            name = self.scope.name_for(result.name)
            self.scope.assign(result, self.scope.code(init), name)

    def _head(self, loop: Repeat, many: bool) -> None:
        """The `for` line, and what the layers of the loop are called in it."""
        scope = self.scope
        index = scope.indices[self._loops]
        self._loops += 1
        members = list(
            dict.fromkeys(m for body in loop.bodies for m in member_names(body.statements))
        )
        if loop.shared:
            counted = loop.site is not None
            scope.write(
                f"for {index} in {_range(loop)}:" if counted else f"for _ in range({loop.count}):"
            )
        elif len(members) == 1 and not many:
            layer = scope.new_name("layer")
            source = scope.member(members[0])
            layers = f"{source}.values()" if loop.first else source
            start = f", {loop.first}" if loop.first else ""
            counted = loop.site is not None
            scope.write(
                f"for {index}, {layer} in enumerate({layers}{start}):"
                if counted
                else f"for {layer} in {layers}:"
            )
            scope.members = {**scope.members, members[0]: layer}
        else:
            scope.write(f"for {index} in {_range(loop)}:")
            inside = {m: _at(loop, m, scope.member(m), index) for m in members}
            scope.members = {**scope.members, **inside}
        if loop.site is not None:
            noise = f"noise_{index}"
            scope.depth += 1
            scope.write(f"{noise} = fold(fold({scope.noise}, {loop.site}), {index})")
            scope.depth -= 1
            scope.noise = noise

    def _body(self, loop: Repeat, body: Body) -> None:
        scope = self.scope
        for param, result in zip(body.params, loop.results, strict=True):
            scope.bind(param, scope.name_for(result.name))
        scope.keep(body.params)
        self.statements(body.statements)
        totals = dict(loop.losses)
        for name, value in body.losses:
            total = scope.code(totals[name]).text
            scope.write(f"{total} = {total} + {scope.code(value).within(SUM)}")
        self._yield(loop, body)

    def _yield(self, loop: Repeat, body: Body) -> None:
        """The carried variables for the next iteration, all read before any is written."""
        changed: list[tuple[str, Code]] = []
        for value, result in zip(body.yields, loop.results, strict=True):
            name, code = self.scope.name_for(result.name), self.scope.code(value)
            if code.text != name:
                changed.append((name, code))
        for name, _ in changed:
            self.scope.before_change(name)
        if changed:
            left = ", ".join(name for name, _ in changed)
            self.scope.write(f"{left} = {', '.join(code.text for _, code in changed)}")
        for result in loop.results:
            self.scope.bind(result, self.scope.name_for(result.name))


def merge_bodies(loop: Repeat) -> tuple[Body, ...]:
    """One body where all of them call the same layer in the same way, else all of them."""
    first, *others = loop.bodies
    shape = _call_shape(first)
    if shape is not None and all(_call_shape(body) == shape for body in others):
        return (first,)
    return loop.bodies


def _call_shape(body: Body) -> object:
    """What a body that is one call of one layer looks like from outside; None for other bodies."""
    if len(body.statements) != 1 or not isinstance(body.statements[0], Call):
        return None
    call = body.statements[0]
    numbers = {id(p): ("param", i) for i, p in enumerate(body.params)}
    numbers |= {id(r): ("result", i) for i, r in enumerate((*call.results, *call.losses))}
    inputs = tuple(None if v is None else numbers.get(id(v), ("outer", id(v))) for v in call.inputs)
    yields = tuple(numbers.get(id(v), ("outer", id(v))) for v in body.yields)
    losses = tuple((name, numbers.get(id(v))) for name, v in body.losses)
    return call.member, inputs, yields, losses, call.function.draws, call.site


def _range(loop: Repeat) -> str:
    start = f"{loop.first}, " if loop.first else ""
    return f"range({start}{loop.indices.stop})"


def _condition(loop: Repeat, k: int, many: int, index: str) -> str:
    """`if i % 2 == 0:`, `elif i in (1, 5):`, `else:`."""
    if k == many - 1:
        return "else:"
    word = "if" if k == 0 else "elif"
    where = [i for i, v in zip(loop.indices, loop.pattern, strict=True) if v == k]
    for period in range(2, 9):
        if (
            where == list(range(where[0], loop.indices.stop, period))
            and len(where) > 1
            and where[0] < loop.first + period
        ):
            return f"{word} {index} % {period} == {where[0] % period}:"
    return (
        f"{word} {index} == {where[0]}:"
        if len(where) == 1
        else f"{word} {index} in {tuple(where)}:"
    )


def _at(loop: Repeat, member: str, source: str, index: str) -> str:
    """A layer of a loop by index; one that some iterations lack is in a dictionary."""
    everywhere = loop.first == 0 and all(
        member in member_names(loop.bodies[variant].statements) for variant in set(loop.pattern)
    )
    return f"{source}[{index}]" if everywhere else f"{source}[str({index})]"
