"""A language model as it is used for writing: one token at a time, keys and values kept.

The result is a program like any other, emitted by the same emitter: losses are gone, nothing is
dropped, and attention, rotations and positions take one more operand, the cache.
"""

from __future__ import annotations

from collections.abc import Sequence

from giantdsl.ir.nodes import Body, Call, Function, Op, Program, Repeat, StageMark, Statement, Value
from giantdsl.ir.types import CACHE, AxisKind, TensorType, base_axis

_CACHED = {"sdpa": "cached_sdpa", "rope": "cached_rope", "positions": "cached_positions"}
_ALONE = frozenset(
    {"linear", "embedding", "layernorm", "rmsnorm", "gelu", "gelu_tanh", "silu", "relu", "tanh"}
    | {"sigmoid", "exp", "log", "sqrt", "softcap", "scale", "shift", "power", "rdiv", "add", "sub"}
    | {"mul", "div", "where", "dropout", "permute", "topk", "dispatch", "combine", *_CACHED}
    | {"softmax", "mean", "sum", "max"}
)
"""Operations that do the same to a token whichever tokens stand beside it, unless they work along
the sequence."""


def cached_program(program: Program) -> Program | None:
    """The program that continues a sequence, or None for a model that cannot.

    It can if what it returns depends on one input of indices [b, s] and looks along `s` only
    through causal attention of a sequence to itself. A mixture of experts must be dropless.
    """
    forward = program.forward
    inputs = [p for i, p in enumerate(forward.params) if i not in forward.loss_only]
    if len(inputs) != 1 or len(forward.results) != 1 or not _is_tokens(program, inputs[0]):
        return None
    rewriter = _Rewriter(program)
    made = rewriter.function(forward, inputs)
    if made is None or not rewriter.attends:
        return None
    return Program(
        model=program.model,
        axes=program.axes,
        scalars=program.scalars,
        functions=[*rewriter.order, made],
        counts={},
        externs={},
        span=program.span,
    )


def _is_tokens(program: Program, value: Value) -> bool:
    kinds = [program.axes[base_axis(a)].kind for a in value.type.axes]
    return value.type.dtype in program.axes and kinds == [AxisKind.BATCH, AxisKind.SEQ]


class _Rewriter:
    """Functions rewritten once each. `order` has callees before callers, without `forward`."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._made: dict[int, Function | None] = {}
        self.order: list[Function] = []
        self.attends = False

    def function(self, function: Function, params: Sequence[Value]) -> Function | None:
        cache = Value("cache", TensorType((), CACHE), function.span)
        wanted = {id(value) for value in function.results}
        statements = self._statements(function.statements, wanted, cache)
        if statements is None:
            return None
        return Function(
            name=function.name,
            symbol=function.symbol,
            params=(*params, cache),
            optional=frozenset(),
            loss_only=frozenset(),
            results=function.results,
            losses=(),
            statements=statements,
            weights=function.weights,
            static=function.static,
            generics=function.generics,
            per=function.per,
            draws=False,
            span=function.span,
        )

    def _statements(
        self, statements: Sequence[Statement], wanted: set[int], cache: Value
    ) -> list[Statement] | None:
        """What `wanted` needs, rewritten; None where something cannot be."""
        found: list[Statement] = []
        for statement in reversed(statements):
            if isinstance(statement, StageMark) or not any(
                id(value) in wanted for value in statement.results
            ):
                continue
            made = self._statement(statement, wanted, cache)
            if made is None:
                return None
            found.append(made)
        return found[::-1]

    def _statement(
        self, statement: Op | Call | Repeat, wanted: set[int], cache: Value
    ) -> Statement | None:
        if isinstance(statement, Op):
            wanted.update(id(value) for value in statement.inputs)
            return self._op(statement, cache)
        if isinstance(statement, Call):
            return self._call(statement, wanted, cache)
        return self._repeat(statement, wanted, cache)

    def _op(self, op: Op, cache: Value) -> Op | None:
        if not self._is_legal(op):
            return None
        kind = _CACHED.get(op.kind, op.kind)
        inputs = op.inputs if kind == op.kind else (*op.inputs, cache)
        attrs = op.attrs
        if op.kind == "dropout":
            kind, attrs = "rename", {}
        self.attends = self.attends or op.kind == "sdpa"
        return Op(kind, inputs, op.results, attrs, op.weights, op.layer, op.span, op.fuse)

    def _is_legal(self, op: Op) -> bool:
        if op.kind == "sdpa":
            return (
                op.attrs["causal"] is True
                and op.attrs["s"] == op.attrs["t"]
                and len(op.inputs) == 3
            )
        if op.kind == "rope":
            return len(op.inputs) == 1
        if op.kind in ("dispatch", "combine"):
            return op.attrs.get("capacity") is None
        if op.kind == "param":
            return not any(self._is_sequence(axis) for axis in op.result.type.axes)
        return op.kind in _ALONE and not any(self._is_sequence(axis) for axis in _worked_along(op))

    def _is_sequence(self, axis: str) -> bool:
        return self._program.axes[base_axis(axis)].kind is AxisKind.SEQ

    def _call(self, call: Call, wanted: set[int], cache: Value) -> Call | None:
        callee = call.function
        if callee.loss_only or any(value is None for value in call.inputs):
            return None
        wanted.update(id(value) for value in call.inputs if value is not None)
        if id(callee) not in self._made:
            made = self.function(callee, callee.params)
            self._made[id(callee)] = made
            if made is not None:
                self.order.append(made)
        made = self._made[id(callee)]
        if made is None:
            return None
        return Call(made, (*call.inputs, cache), call.results, (), call.member, call.span)

    def _repeat(self, loop: Repeat, wanted: set[int], cache: Value) -> Repeat | None:
        wanted.update(id(value) for value in loop.inits)
        bodies: list[Body] = []
        for body in loop.bodies:
            inside = {id(value) for value in body.yields}
            statements = self._statements(body.statements, inside, cache)
            if statements is None:
                return None
            wanted.update(inside)
            bodies.append(Body(body.params, statements, body.yields, ()))
        return Repeat(
            index=loop.index,
            count=loop.count,
            shared=loop.shared,
            bodies=tuple(bodies),
            pattern=loop.pattern,
            inits=loop.inits,
            results=loop.results,
            losses=(),
            every=0,
            span=loop.span,
        )


def _worked_along(op: Op) -> list[str]:
    """The axes that an operation mixes, or has weights for each place of."""
    found: list[str] = []
    for name in ("over", "contracted", "created", "per"):
        axes = op.attrs.get(name)
        if isinstance(axes, tuple):
            found += map(str, axes)
        elif axes is not None:
            found.append(str(axes))
    return found
