"""A program cut into stages, each a program of its own (language.md 2.12).

What a stage computes and what reaches it is found in `crossings.py`; here it becomes programs. A
weight that several stages use is held by each under its one logical name: by the layer itself
where the stage has it, by a `Hold` where only layers tied to it are here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from giantdsl.ir.nodes import (
    Call,
    Function,
    Hold,
    Op,
    Program,
    Repeat,
    Statement,
    Value,
    Weight,
    all_statements,
    results_of,
    statements_of,
)
from giantdsl.ir.parameters import iter_parameters
from giantdsl.ir.types import FLOAT
from giantdsl.passes.crossings import Crossings, Sent, StageContent, find_crossings
from giantdsl.passes.gradients import values_with_gradient
from giantdsl.passes.reads import reads_of, with_reads
from giantdsl.passes.split_losses import sum_of
from giantdsl.passes.stage_names import layers_text, made_name
from giantdsl.passes.stages import place_statements
from giantdsl.settings.values import ParallelSettings


@dataclass(frozen=True, slots=True)
class Crossing:
    """A value as a stage receives it: `value` is a parameter of the stage's `forward`.

    `name` is its name between stages, on all of them. `grad`: a gradient comes back.
    """

    name: str
    value: Value
    grad: bool


@dataclass(frozen=True, slots=True)
class StageProgram:
    """One stage. Its forward takes `inputs`, then `receives`; it returns `makes`, then `outputs`.

    `sends` go to the next stage: each is among `makes` or `receives`. `outputs` are results of the
    model, `losses` the names of those it has a term of. `units` says in words which layers it
    has. `recomputed` are values that other stages compute, too, `tied` the parameters that
    other stages hold, too, by their logical names.
    """

    index: int
    program: Program
    inputs: tuple[str, ...]
    receives: tuple[Crossing, ...]
    makes: tuple[str, ...]
    sends: tuple[str, ...]
    outputs: tuple[str, ...]
    losses: tuple[str, ...]
    units: str
    recomputed: tuple[str, ...] = ()
    tied: tuple[str, ...] = ()


def cut_stages(program: Program, parallel: ParallelSettings) -> tuple[StageProgram, ...]:
    """The stages of a plan that was found legal, in order; one where nothing is cut.

    Losses on several stages are terms that add up. Functions of blocks keep their symbols; loops
    keep their indices, random sites their numbers, weights their names. No stage has `counts`:
    they are the whole program's.
    """
    placement = place_statements(program, parallel)
    found = find_crossings(program, placement)
    names = _names(program, found.sent)
    cutter = _Cutter(program, found, names)
    return _with_ties([cutter.stage(index) for index in range(placement.num_stages)])


def _names(program: Program, sent: Sequence[Sent]) -> dict[int, str]:
    """The user's name where it is one value's only, else with the stage that makes it: `x_0`.

    A value with two names goes by the second where the first is not its only.
    """
    taken = {value.name for value in program.forward.params}
    hints = [made_name(value.maker, value.value) for value in sent]
    often = Counter(hints)
    second = [value.value.alias for value in sent]
    hints = [
        alias if alias and often[hint] > 1 else hint
        for hint, alias in zip(hints, second, strict=True)
    ]
    often = Counter(hints)
    names: dict[int, str] = {}
    for hint, value in zip(hints, sent, strict=True):
        is_free = often[hint] == 1 and hint not in taken
        name = base = hint if is_free else f"{hint}_{value.stage}"
        number = 1
        while name in taken:
            number += 1
            name = f"{base}_{number}"
        taken.add(name)
        names[id(value.value)] = name
    return names


_RANDOM = (Op, Call, Repeat)


class _Cutter:
    """Writes the stages, first to last: whether a value has a gradient goes from one to the next."""

    def __init__(self, program: Program, found: Crossings, names: Mapping[int, str]) -> None:
        self._program, self._found, self._names = program, found, names
        self._params = {
            id(s.value): Value(names[id(s.value)], s.value.type, s.value.span) for s in found.sent
        }
        self._has_gradient: set[int] = set()

    def stage(self, index: int) -> StageProgram:
        content = self._found.stages[index]
        arriving = [s for s in self._found.sent if s.stage < index <= s.last]
        leaving = [s for s in self._found.sent if s.stage <= index < s.last]
        made = [s for s in leaving if s.stage == index]
        inputs = [v for v in self._program.forward.params if id(v) in content.reads]
        results = [*(s.value for s in made), *content.outputs]
        program = self._stage_program(index, content, inputs, arriving, results)
        receives = tuple(
            Crossing(
                name=self._names[id(s.value)],
                value=self._params[id(s.value)],
                grad=id(s.value) in self._has_gradient,
            )
            for s in arriving
        )
        flowing = values_with_gradient(program, [c.value for c in receives if c.grad])
        self._has_gradient |= {
            id(s.value) for s in made if s.value.type.dtype == FLOAT and id(s.value) in flowing
        }
        recomputed = [made_name(maker, value) for maker, value in content.recomputed]
        return StageProgram(
            index=index,
            program=program,
            inputs=tuple(value.name for value in inputs),
            receives=receives,
            makes=tuple(self._names[id(s.value)] for s in made),
            sends=tuple(self._names[id(s.value)] for s in leaving),
            outputs=tuple(value.name for value in content.outputs),
            losses=tuple(name for name, _ in program.forward.losses),
            units=layers_text(program.forward),
            recomputed=tuple(dict.fromkeys(recomputed)),
        )

    def _stage_program(
        self,
        index: int,
        content: StageContent,
        inputs: Sequence[Value],
        arriving: Sequence[Sent],
        results: Sequence[Value],
    ) -> Program:
        whole = self._program.forward
        here = {id(s.value): self._params[id(s.value)] for s in arriving}
        statements = list(content.statements)
        losses: list[tuple[str, Value]] = []
        for name, terms in self._found.losses.terms.get(index, {}).items():
            ops, total = sum_of(name, terms)
            statements += ops
            losses.append((name, total))
        order = [name for name, _ in whole.losses]
        losses.sort(key=lambda loss: order.index(loss[0]))
        statements = [with_reads(statement, here) for statement in statements]
        params = (*inputs, *(here[id(s.value)] for s in arriving))
        forward = replace(
            whole,
            params=params,
            optional=_same_params(whole, whole.optional, params),
            loss_only=_loss_only(whole, params, statements, results),
            results=tuple(results),
            losses=tuple(losses),
            statements=statements,
            weights=_owned(statements),
            draws=any(isinstance(s, _RANDOM) and s.site is not None for s in statements),
            holds=_holds(whole, statements),
        )
        functions = [*_callees(self._program, forward), forward]
        ops = [s for f in functions for s in statements_of(f) if isinstance(s, Op)]
        used = {op.attrs["name"] for op in ops if op.kind == "extern"}
        externs = {name: e for name, e in self._program.externs.items() if name in used}
        return replace(self._program, functions=functions, counts={}, externs=externs)


def _same_params(
    whole: Function, positions: Collection[int], params: Sequence[Value]
) -> frozenset[int]:
    """The positions in a stage of those of the whole program's parameters."""
    keys = {id(whole.params[i]) for i in positions}
    return frozenset(i for i, value in enumerate(params) if id(value) in keys)


def _loss_only(
    whole: Function,
    params: Sequence[Value],
    statements: Sequence[Statement],
    results: Sequence[Value],
) -> frozenset[int]:
    """Labels that nothing returned here is computed from."""
    needed = {id(value) for value in results}
    for statement in reversed(statements):
        if any(id(value) in needed for value in results_of(statement)):
            needed.update(id(value) for value in reads_of(statement))
    labels = _same_params(whole, whole.loss_only, params)
    return frozenset(i for i in labels if id(params[i]) not in needed)


def _owned(statements: Sequence[Statement]) -> list[Weight]:
    uses = (u for s in all_statements(statements) if isinstance(s, Op) for u in s.weights)
    return [use.weight for use in uses if not use.tied]


def _holds(whole: Function, statements: Sequence[Statement]) -> tuple[Hold, ...]:
    """The weights that layers here are tied to, where the layers that own them are elsewhere."""
    here = list(all_statements(statements))
    owned = {id(weight) for weight in _owned(statements)}
    blocks = {s.member for s in here if isinstance(s, Call)}
    found: dict[tuple[object, ...], Hold] = {}
    for statement in here:
        for use in statement.weights if isinstance(statement, Op) else ():
            path = tuple(member for member, _ in use.path)
            is_here = path[0] in blocks if path else id(use.weight) in owned
            if use.tied and not is_here:
                symbol = _owner(whole, path).symbol if path else ""
                found.setdefault((path, id(use.weight)), Hold(use.weight, symbol, path))
    return tuple(found.values())


def _owner(whole: Function, path: Sequence[str]) -> Function:
    function = whole
    for member in path:
        calls = (s for s in all_statements(function.statements) if isinstance(s, Call))
        function = next(call.function for call in calls if call.member == member)
    return function


def _callees(program: Program, forward: Function) -> list[Function]:
    """The functions that a stage calls, callees first."""
    needed: set[int] = set()
    stack = [forward]
    while stack:
        for statement in statements_of(stack.pop()):
            if isinstance(statement, Call) and id(statement.function) not in needed:
                needed.add(id(statement.function))
                stack.append(statement.function)
    return [function for function in program.functions if id(function) in needed]


def _with_ties(stages: Sequence[StageProgram]) -> tuple[StageProgram, ...]:
    held = [[p.name for p in iter_parameters(stage.program)] for stage in stages]
    often = Counter(name for names in held for name in names)
    return tuple(
        replace(stage, tied=tuple(name for name in names if often[name] > 1))
        for stage, names in zip(stages, held, strict=True)
    )
