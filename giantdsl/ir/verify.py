"""Holds a program to the invariants of the IR; what each op must look like is in `verify_ops.py`.

Passes may rely on them. They are checked after `sema` and after every pass in tests and when a
program is read from text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NoReturn

from giantdsl.errors import InternalError
from giantdsl.ir.nodes import (
    Body,
    Call,
    Function,
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
from giantdsl.ir.types import BUILTIN_DTYPES, FLOAT, ROUTE, AxisKind, TensorType, base_axis
from giantdsl.ir.verify_ops import check_op


def verify(program: Program) -> None:
    """Return if the program is well formed.

    Raises InternalError that names the function and the statement.
    """
    _Verifier(program).run()


class _Verifier:
    def __init__(self, program: Program) -> None:
        self._program = program
        self._done: dict[int, Function] = {}
        self._owners: dict[int, Function] = {}
        self._defined: set[int] = set()
        self._function = program.functions[-1] if program.functions else None

    def run(self) -> None:
        if not self._program.functions:
            raise InternalError("a program without functions")
        symbols: set[str] = set()
        scope: set[int] = set()
        for function in self._program.functions:
            self._function = function
            if not function.symbol.isidentifier() or function.symbol in symbols:
                self._fail(f"`{function.symbol}` is no symbol of its own")
            symbols.add(function.symbol)
            scope = self._check_function(function)
            self._done[id(function)] = function
        self._check_counts(scope)

    def _fail(self, message: str, node: Statement | None = None) -> NoReturn:
        name = self._function.symbol if self._function is not None else "?"
        where = f" ({node.span})" if node is not None else ""
        raise InternalError(f"in function {name}{where}: {message}")

    # ---- functions ------------------------------------------------------------------------

    def _check_function(self, function: Function) -> set[int]:
        scope: set[int] = set()
        self._define(function.params, scope)
        positions = range(len(function.params))
        if not function.optional | function.loss_only <= set(positions):
            self._fail("optional or loss_only names a parameter that is not there")
        self._check_ownership(function)
        self._check_holds(function)
        self._check_statements(function.statements, scope)
        self._use(function.results, scope, "a result")
        self._check_losses(function.losses, scope)
        if function.draws != _draws(function.statements):
            self._fail(f"draws is {function.draws}")
        return scope

    def _check_ownership(self, function: Function) -> None:
        """Each weight is owned by one use; the function lists its own in order of use."""
        owned: list[Weight] = []
        for statement in statements_of(function):
            for use in statement.weights if isinstance(statement, Op) else ():
                if use.tied:
                    continue
                weight = use.weight
                if id(weight) in self._owners:
                    self._fail(f"weight {weight.member}.{weight.leaf} is owned twice", statement)
                self._owners[id(weight)] = function
                owned.append(weight)
                self._check_weight(weight, statement)
        if [id(w) for w in owned] != [id(w) for w in function.weights]:
            self._fail("its list of weights is not what its statements own")

    def _check_holds(self, function: Function) -> None:
        """Weights of other stages: in `forward` only, where nothing here has their name."""
        if function.holds and function is not self._program.forward:
            self._fail("a weight of another stage is held outside `forward`")
        members = {s.member for s in statements_of(function) if isinstance(s, Call)}
        members |= {weight.member for weight in function.weights}
        names = [(hold.path, hold.weight.member, hold.weight.leaf) for hold in function.holds]
        for path, member, _ in names:
            if (*path, member)[0] in members:
                self._fail(
                    f"{'.'.join((*path, member))} is held, but there is a layer of that name"
                )
        if len(set(names)) != len(names):
            self._fail("a weight is held twice")

    def _check_weight(self, weight: Weight, statement: Statement) -> None:
        per, out, into = weight.per, weight.out_axes, weight.in_axes
        if weight.axes not in ((*per, *out, *into), (*per, *into, *out)):
            self._fail(f"axes of weight {weight.member} are not per, out and in axes", statement)
        for axis in weight.axes:
            found = self._program.axes.get(base_axis(axis))
            if found is None or found.kind in (AxisKind.BATCH, AxisKind.RAGGED):
                self._fail(f"weight {weight.member} has the axis {axis}", statement)

    def _check_losses(self, losses: Sequence[tuple[str, Value]], scope: set[int]) -> None:
        names = [name for name, _ in losses]
        if len(set(names)) != len(names):
            self._fail("two losses of one name")
        self._use([v for _, v in losses], scope, "a loss")
        for name, value in losses:
            if value.type.axes or value.type.dtype != FLOAT:
                self._fail(f"loss {name} is {value.type}")

    def _check_counts(self, scope: set[int]) -> None:
        losses = {name for name, _ in self._program.forward.losses}
        for name, count in self._program.counts.items():
            if name not in losses:
                self._fail(f"there is a count for {name}, which is no loss")
            if count.kind not in ("rows", "valid"):
                self._fail(f"the count of {name} is of kind {count.kind}")
            if (count.labels is None) == (count.kind == "valid"):
                self._fail(f"the count of {name} has the wrong labels")
            for value in (count.labels, count.weight):
                if value is not None and id(value) not in scope:
                    self._fail(f"the count of {name} reads a value that `forward` does not have")

    # ---- values ---------------------------------------------------------------------------

    def _define(self, values: Iterable[Value], scope: set[int]) -> None:
        for value in values:
            if id(value) in self._defined:
                self._fail(f"value {value.name or '?'} is defined twice")
            self._defined.add(id(value))
            scope.add(id(value))
            self._check_type(value.type)

    def _use(self, values: Iterable[Value], scope: set[int], what: str) -> None:
        for value in values:
            if id(value) not in scope:
                self._fail(f"{what} reads {value.name or '?'}: {value.type}, which is not in scope")

    def _check_type(self, type: TensorType) -> None:
        if len(set(type.axes)) != len(type.axes):
            self._fail(f"{type} has an axis twice")
        axes = self._program.axes
        missing = [a for a in type.axes if base_axis(a) not in axes]
        if missing or not (type.dtype in (*BUILTIN_DTYPES, ROUTE) or base_axis(type.dtype) in axes):
            self._fail(f"{type} names an axis that is not there")
        if any(axis not in type.axes for axis, _ in type.at):
            self._fail(f"{type} lays out an axis that it has not")

    # ---- statements -----------------------------------------------------------------------

    def _check_statements(self, statements: Sequence[Statement], scope: set[int]) -> None:
        sites: set[int] = set()
        fused: Op | None = None
        closed: set[int] = set()
        for statement in statements:
            if isinstance(statement, StageMark):
                if self._function is not self._program.forward:
                    self._fail("a stage boundary outside `forward`", statement)
                continue
            if statement.site is not None:
                if statement.site in sites:
                    self._fail(f"site {statement.site} is used twice", statement)
                sites.add(statement.site)
            fuse = statement.fuse if isinstance(statement, Op) else None
            if fused is not None and fuse != fused.fuse:
                closed.add(fused.fuse or 0)
            if fuse is not None and isinstance(statement, Op):
                same = fused is not None and fuse == fused.fuse
                if fuse in closed or (same and fused and statement.inputs != fused.inputs):
                    self._fail(f"fused group {fuse} is no group of neighbours", statement)
                if statement.kind != "linear":
                    self._fail(f"a {statement.kind} is fused", statement)
            fused = statement if isinstance(statement, Op) and fuse is not None else None
            if isinstance(statement, Op):
                self._check_op(statement, scope)
            elif isinstance(statement, Call):
                self._check_call(statement, scope)
            else:
                self._check_repeat(statement, scope)

    def _check_op(self, op: Op, scope: set[int]) -> None:
        self._use(op.inputs, scope, op.kind)
        problem = check_op(self._program, op)
        if problem is not None:
            self._fail(f"{op.kind}: {problem}", op)
        if bool(op.layer) != any(not use.tied for use in op.weights):
            self._fail(f"{op.kind}: layer is `{op.layer}`", op)
        for use in op.weights:
            if use.tied:
                self._check_tie(use, op)
            elif use.weight.member != op.layer:
                self._fail(f"the weight of layer {op.layer} is called {use.weight.member}", op)
        self._define(op.results, scope)

    def _check_tie(self, use: WeightUse, op: Op) -> None:
        function = self._function
        path = tuple(member for member, _ in use.path)
        holds = function.holds if function else ()
        if any(hold.weight is use.weight and hold.path == path for hold in holds):
            return
        for member, _ in use.path:
            calls = (s for s in statements_of(function) if isinstance(s, Call)) if function else ()
            function = next((c.function for c in calls if c.member == member), None)
            if function is None:
                self._fail(f"a tie goes through {member}, which is not there", op)
        if self._owners.get(id(use.weight)) is not function:
            self._fail(f"weight {use.weight.member} is tied, but nobody there owns it", op)

    def _check_call(self, call: Call, scope: set[int]) -> None:
        function = call.function
        if id(function) not in self._done:
            self._fail(f"calls {function.symbol}, which does not come before it", call)
        self._use((v for v in call.inputs if v is not None), scope, f"the call of {call.member}")
        if len(call.inputs) != len(function.params):
            self._fail(f"{len(call.inputs)} inputs for {function.symbol}", call)
        for i, (value, param) in enumerate(zip(call.inputs, function.params, strict=True)):
            if value is None and i not in function.optional:
                self._fail(f"{function.symbol} needs {param.name}", call)
            if value is not None and not _fits(value.type, param.type):
                self._fail(f"{param.name} of {function.symbol} is given {value.type}", call)
        made = [v.type for v in call.results], [v.type for v in call.losses]
        wanted = [v.type for v in function.results], [v.type for _, v in function.losses]
        if made != wanted:
            self._fail(f"{function.symbol} gives other results or losses", call)
        if (call.site is not None) != function.draws:
            self._fail(f"site is {call.site}, draws is {function.draws}", call)
        self._define((*call.results, *call.losses), scope)

    def _check_repeat(self, loop: Repeat, scope: set[int]) -> None:
        self._use(loop.inits, scope, "a loop")
        if len(loop.pattern) != loop.count or set(loop.pattern) != set(range(len(loop.bodies))):
            self._fail(f"pattern {loop.pattern} of {len(loop.bodies)} bodies", loop)
        if loop.shared and len(loop.bodies) > 1:
            self._fail("a shared loop with several bodies", loop)
        if loop.first < 0:
            self._fail(f"a loop from {loop.first} on", loop)
        if loop.every < 0 or (loop.every and self._function is not self._program.forward):
            self._fail(f"every is {loop.every}", loop)
        carried = [_bare(v.type) for v in loop.inits]
        names: dict[str, None] = {}
        for body in loop.bodies:
            self._check_body(body, scope, carried, loop)
            names.update(dict.fromkeys(name for name, _ in body.losses))
        if [_bare(v.type) for v in loop.results] != carried:
            self._fail("a loop's results are not of the types it carries", loop)
        if [name for name, _ in loop.losses] != list(names):
            self._fail("a loop's losses are not those of its bodies", loop)
        draws = any(_draws(body.statements) for body in loop.bodies)
        if (loop.site is not None) != draws:
            self._fail(f"site is {loop.site}, draws is {draws}", loop)
        self._define((*loop.results, *(v for _, v in loop.losses)), scope)

    def _check_body(
        self, body: Body, scope: set[int], carried: list[tuple[tuple[str, ...], str]], loop: Repeat
    ) -> None:
        inner = set(scope)
        self._define(body.params, inner)
        self._check_statements(body.statements, inner)
        self._use(body.yields, inner, "a loop's end")
        self._check_losses(body.losses, inner)
        for values in (body.params, body.yields):
            if [_bare(v.type) for v in values] != carried:
                self._fail("a loop carries values of changing types", loop)


def _draws(statements: Sequence[Statement]) -> bool:
    return any(not isinstance(s, StageMark) and s.site is not None for s in statements)


def _bare(type: TensorType) -> tuple[tuple[str, ...], str]:
    """A type without the layouts written on it, which may differ from use to use."""
    return type.axes, type.dtype


def _fits(given: TensorType, param: TensorType) -> bool:
    """Axes in the same order; a generic bound twice to one axis sees it primed inside."""
    same = [base_axis(a) for a in given.axes] == [base_axis(a) for a in param.axes]
    return same and given.dtype == param.dtype
