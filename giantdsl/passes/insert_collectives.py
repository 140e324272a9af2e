"""Conversions of values between operations that are divided in different ways.

The result is the same program with more operations (language.md 3.2):

    copy_to, reduce_from                        attrs: mesh
    all_gather, gather_whole, scatter,
    reduce_scatter, local                       attrs: mesh, axis

and on every operation that is divided an attribute `split`: (mesh axis, axis) pairs. Between
operations a value is divided as its type says; where it is whole over a mesh axis, it is the same
on each rank there, and so is its gradient. Partial sums never leave the operation that makes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from giantdsl.attrs import Attr
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
    WeightUse,
    written_together,
)
from giantdsl.ir.types import FLOAT, AxisKind, base_axis
from giantdsl.passes.gradients import values_with_gradient
from giantdsl.passes.layout import Rules
from giantdsl.passes.operands import CONVERTED, ROWS_INSIDE, Need, need, split_of
from giantdsl.passes.storage import Key, WeightLayout, owners_of, use_split

Step = tuple[str, str, str]
"""A conversion: its kind, the mesh axis, the axis ("" where it has none)."""


def insert_collectives(
    program: Program,
    rules: Rules,
    weights: Mapping[Key, WeightLayout],
    received: Sequence[Value] = (),
    with_gradient: Iterable[Value] = (),
) -> Program:
    """The program with every conversion written out.

    Args:
      weights: the layouts of the whole model's weights; `program` may be one stage of it.
      received: parameters of `forward` that come from another stage, laid out by their types. All
        others are inputs: they come whole, but for the batch.
      with_gradient: those of `received` that have a gradient.
    """
    gradients = values_with_gradient(program, with_gradient)
    owners = owners_of(program)
    done: dict[int, Function] = {}
    functions: list[Function] = []
    for function in program.functions:
        writer = _Writer(program, rules, weights, gradients, owners, done)
        is_top = function is program.forward
        functions.append(
            writer.forward(function, received) if is_top else writer.function(function)
        )
        done[id(function)] = functions[-1]
    return replace(program, functions=functions)


class _Writer:
    """Rewrites one function. `done` are the functions already rewritten, by id of the old one."""

    def __init__(
        self,
        program: Program,
        rules: Rules,
        weights: Mapping[Key, WeightLayout],
        gradients: frozenset[int],
        owners: Mapping[int, Key],
        done: Mapping[int, Function],
    ) -> None:
        self.program, self.rules, self.weights = program, rules, weights
        self.gradients, self.owners, self.done = gradients, owners, done
        self.lists: list[list[Statement]] = []
        self.depths: dict[int, int] = {}
        self.made: list[dict[tuple[int, tuple[Step, ...]], Value]] = []

    def function(self, function: Function) -> Function:
        self._define(function.params, depth=0)
        return replace(function, statements=self._body(function.statements))

    def forward(self, function: Function, received: Sequence[Value]) -> Function:
        """Inputs are cut to this rank's part first."""
        inside = {id(value) for value in received}
        params: list[Value] = []
        cuts: list[Op] = []
        for value in function.params:
            steps = [("local", m, a) for m, a in self._layout(value).items() if a is not None]
            if id(value) in inside or not steps:
                params.append(value)
                continue
            whole = Value(value.name, value.type, value.span)
            params.append(whole)
            cuts += _chain(whole, steps, value)
        self._define(params, depth=0)
        self._define(function.params, depth=0)
        statements = [*cuts, *self._body(function.statements)]
        return replace(function, params=tuple(params), statements=statements)

    # ---- statements -----------------------------------------------------------------------

    def _body(self, statements: Sequence[Statement]) -> list[Statement]:
        self.lists.append([])
        self.made.append({})
        self._statements(statements)
        self.made.pop()
        return self.lists.pop()

    def _statements(self, statements: Sequence[Statement]) -> None:
        for group in written_together(statements):
            if isinstance(group[0], Op):
                self._ops([op for op in group if isinstance(op, Op)])
            else:
                self._other(group[0])

    def _other(self, statement: Statement) -> None:
        if isinstance(statement, Call):
            self._call(statement)
        elif isinstance(statement, Repeat):
            self._repeat(statement)
        else:
            assert isinstance(statement, StageMark)
            self.lists[-1].append(statement)

    def _define(self, values: Iterable[Value], depth: int | None = None) -> None:
        at = len(self.lists) - 1 if depth is None else depth
        self.depths.update((id(value), at) for value in values)

    def _call(self, call: Call) -> None:
        function = self.done[id(call.function)]
        inputs = tuple(
            None if value is None else self._as_param(value, param)
            for value, param in zip(call.inputs, function.params, strict=True)
        )
        self._define((*call.results, *call.losses))
        outs = list(zip(call.results, function.results, strict=True))
        results = tuple(self._before_result(value, inner) for value, inner in outs)
        self.lists[-1].append(replace(call, function=function, inputs=inputs, results=results))
        for (value, inner), made in zip(outs, results, strict=True):
            if made is not value:
                self._finish_as(made, value, self._layout_at(inner, value))

    def _as_param(self, value: Value, param: Value) -> Value:
        """An argument laid out as the parameter; axes correspond by position."""
        wanted = {m: Need(_moved(self.rules.layout(m, param), param, value)) for m in CONVERTED}
        return self._bring(value, self._layout(value), wanted)

    def _before_result(self, value: Value, inner: Value) -> Value:
        if self._layout_at(inner, value) == self._layout(value):
            return value
        made = Value("", value.type, value.span)
        self._define([made])
        return made

    def _layout_at(self, inner: Value, value: Value) -> dict[str, str | None]:
        """The layout of a callee's value in the caller's names for its axes."""
        return {m: _moved(self.rules.layout(m, inner), inner, value) for m in CONVERTED}

    def _repeat(self, loop: Repeat) -> None:
        params = loop.bodies[0].params if loop.bodies else loop.inits
        inits = tuple(
            self._as_param(value, param) for value, param in zip(loop.inits, params, strict=True)
        )
        bodies = tuple(self._loop_body(body, params) for body in loop.bodies)
        results = tuple(
            self._before_result(value, param)
            for value, param in zip(loop.results, params, strict=True)
        )
        self._define((*loop.results, *(value for _, value in loop.losses)))
        self.lists[-1].append(replace(loop, inits=inits, bodies=bodies, results=results))
        for value, made, param in zip(loop.results, results, params, strict=True):
            if made is not value:
                self._finish_as(made, value, self._layout_at(param, value))

    def _loop_body(self, body: Body, params: Sequence[Value]) -> Body:
        self._define(body.params, depth=len(self.lists))
        self.lists.append([])
        self.made.append({})
        self._statements(body.statements)
        yields = tuple(
            self._as_param(value, param) for value, param in zip(body.yields, params, strict=True)
        )
        self.made.pop()
        return replace(body, statements=self.lists.pop(), yields=yields)

    # ---- operations -----------------------------------------------------------------------

    def _ops(self, group: Sequence[Op]) -> None:
        """One operation, or several written as one call: conversions stand around them all."""
        written: list[tuple[Op, Op, dict[str, str | None]]] = []
        for op in group:
            splits = {m: split_of(op, m, self.rules, self.program) for m in self.rules.sizes}
            written.append((op, self._op(op, splits), splits))
        if any("finish" in new.attrs for _, new, _ in written):
            written = [(old, replace(new, fuse=None), splits) for old, new, splits in written]
        for _, new, _ in written:
            self.lists[-1].append(new)
        for old, new, splits in written:
            for value, made in zip(old.results, new.results, strict=True):
                if made is not value:
                    self._settle(old, made, value, splits)

    def _op(self, op: Op, splits: dict[str, str | None]) -> Op:
        inputs = tuple(self._operand(op, i, splits) for i in range(len(op.inputs)))
        self._define(op.results)
        attrs: dict[str, Attr] = dict(op.attrs)
        split = tuple((m, axis) for m, axis in splits.items() if axis is not None)
        if split:
            attrs["split"] = split
        if op.kind in ("dispatch", "combine") and self._sends_tokens(op):
            attrs["exchange"] = True
        results = tuple(
            Value("", value.type, value.span) if self._finish_steps(op, value, splits) else value
            for value in op.results
        )
        bias = op.weight("bias") if op.kind == "linear" else None
        if bias is not None and results[0] is not op.result:
            # The bias joins the finished result, so the operation finishes it itself.
            attrs["finish"] = self._finish_steps(op, op.result, splits)
            results = op.results
        self._define(results)
        uses = tuple(self._use(op, use) for use in op.weights)
        return replace(op, inputs=inputs, attrs=attrs, results=results, weights=uses)

    def _use(self, op: Op, use: WeightUse) -> WeightUse:
        layout = self.weights[self.owners[id(use.weight)]]
        copied: list[str] = []
        for mesh_axis in CONVERTED:
            split = use_split(op, use, mesh_axis, self.rules, self.program)
            if mesh_axis in layout.copied and split is not None:
                copied.append(mesh_axis)
            if split in use.weight.axes and self._is_feature(split):
                if layout.axis_of(mesh_axis) != split:
                    raise InternalError(
                        f"weight {use.weight.member} is divided along `{split}` in one use only"
                    )
        return replace(use, copied=tuple(copied)) if copied else use

    def _is_feature(self, axis: str | None) -> bool:
        return axis is not None and self.program.axes[base_axis(axis)].kind is AxisKind.FEATURE

    def _sends_tokens(self, op: Op) -> bool:
        return self.rules.sizes["ep"] > 1 and op.attrs["experts"] in self.rules.listed["ep"]

    def _operand(self, op: Op, position: int, splits: dict[str, str | None]) -> Value:
        value = op.inputs[position]
        have = self._layout(value)
        wanted: dict[str, Need] = {}
        for mesh_axis in CONVERTED:
            found = need(op, position, mesh_axis, splits[mesh_axis], self.rules)
            wanted[mesh_axis] = Need(have[mesh_axis]) if found is None else found
        return self._bring(value, have, wanted)

    def _finish_steps(
        self, op: Op, value: Value, splits: dict[str, str | None]
    ) -> tuple[Step, ...]:
        """From what the operation makes to what the type of its result says."""
        partial: list[Step] = []
        have: dict[str, str | None] = {}
        wanted = self._layout(value)
        for mesh_axis in CONVERTED:
            split = splits[mesh_axis]
            if op.kind in ("dispatch", "combine") and mesh_axis == "cp":
                have[mesh_axis] = wanted[mesh_axis]
            elif split is None or split in value.type.axes:
                have[mesh_axis] = split
            elif op.kind in ROWS_INSIDE:
                have[mesh_axis] = None
            elif wanted[mesh_axis] is not None:
                partial.append(("reduce_scatter", mesh_axis, str(wanted[mesh_axis])))
                have[mesh_axis] = wanted[mesh_axis]
            else:
                partial.append(("reduce_from", mesh_axis, ""))
                have[mesh_axis] = None
        needs = {m: Need(axis) for m, axis in wanted.items()}
        return (*partial, *self._steps(value, have, needs))

    def _settle(self, op: Op, made: Value, value: Value, splits: dict[str, str | None]) -> None:
        self._convert(made, self._finish_steps(op, value, splits), value)

    def _finish_as(self, made: Value, value: Value, have: dict[str, str | None]) -> None:
        needs = {m: Need(axis) for m, axis in self._layout(value).items()}
        self._convert(made, self._steps(value, have, needs), value)

    # ---- conversions ----------------------------------------------------------------------

    def _layout(self, value: Value) -> dict[str, str | None]:
        return {m: self.rules.layout(m, value) for m in CONVERTED}

    def _bring(
        self, value: Value, have: Mapping[str, str | None], wanted: Mapping[str, Need]
    ) -> Value:
        """The value as it is wanted: converted once for all that want it so."""
        steps = self._steps(value, have, wanted)
        if not steps:
            return value
        depth = self.depths[id(value)]
        known = self.made[depth]
        if (id(value), steps) not in known:
            last = Value("", value.type, value.span)
            self.depths[id(last)] = depth
            self._convert(value, steps, last, depth)
            known[(id(value), steps)] = last
        return known[(id(value), steps)]

    def _steps(
        self, value: Value, have: Mapping[str, str | None], wanted: Mapping[str, Need]
    ) -> tuple[Step, ...]:
        """Gathers from the fastest mesh axis on, then slices from the slowest on."""
        flows = id(value) in self.gradients and value.type.dtype == FLOAT
        gathers: list[Step] = []
        slices: list[Step] = []
        for mesh_axis in reversed(CONVERTED):
            here, there = have[mesh_axis], wanted[mesh_axis]
            if here is not None and here != there.axis:
                kind = "all_gather" if there.partial and flows else "gather_whole"
                gathers.append((kind, mesh_axis, here))
        for mesh_axis in CONVERTED:
            here, there = have[mesh_axis], wanted[mesh_axis]
            if there.axis is not None and here != there.axis:
                slices.append(("scatter" if flows else "local", mesh_axis, there.axis))
            elif here is None and there.axis is None and there.partial and flows:
                slices.append(("copy_to", mesh_axis, ""))
        return (*gathers, *slices)

    def _convert(
        self, value: Value, steps: Sequence[Step], last: Value, depth: int | None = None
    ) -> None:
        """Conversions one after another, the last one making `last`."""
        at = len(self.lists) - 1 if depth is None else depth
        ops = _chain(value, steps, last)
        self.depths.update((id(op.result), at) for op in ops)
        self.lists[at] += ops


def _chain(value: Value, steps: Sequence[Step], last: Value) -> list[Op]:
    """Conversions one after another, the last one making `last`."""
    ops: list[Op] = []
    for i, (kind, mesh_axis, axis) in enumerate(steps):
        made = last if i == len(steps) - 1 else Value("", value.type, value.span)
        attrs: dict[str, Attr] = {"mesh": mesh_axis}
        if axis:
            attrs["axis"] = axis
        ops.append(Op(kind, (value,), (made,), attrs, (), "", value.span))
        value = made
    return ops


def _moved(axis: str | None, source: Value, target: Value) -> str | None:
    """The axis of `target` that stands where `axis` stands in `source`."""
    if axis is None:
        return None
    return target.type.axes[source.type.axes.index(axis)]
