"""Cuts a program into stages, each a program of its own (language.md 2.12).

What crosses a cut: inputs are read by every stage that uses them; values that depend on no weight
or on no input are computed again; everything else that is alive is sent, hop by hop, once a
cut; a weight used on several stages is held by each under its one name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from giantdsl.errors import SettingsError
from giantdsl.ir.nodes import (
    Body,
    Call,
    Function,
    Op,
    Program,
    Repeat,
    Statement,
    Value,
    Weight,
    WeightUse,
    statements_of,
)
from giantdsl.ir.types import FLOAT
from giantdsl.passes.gradients import values_with_gradient
from giantdsl.passes.loss_terms import losses_by_stage
from giantdsl.passes.place_units import atoms_of, place_units
from giantdsl.passes.reads import reads_of, replace_reads, results_of
from giantdsl.passes.stages import count_stages
from giantdsl.settings.values import ParallelSettings


@dataclass(frozen=True, slots=True)
class Crossing:
    """A value that a stage receives: its name between stages, and the stage's parameter for it."""

    name: str
    value: Value
    grad: bool


@dataclass(frozen=True, slots=True)
class StageProgram:
    """One stage. Its forward takes `inputs`, then `receives`; it returns `makes`, then `outputs`.

    `sends` go to the next stage: they are among `makes` or `receives`. `again` are values that an
    earlier stage computes, too; `tied` are parameters by the part of their name that other stages
    share. `units` says in words what the stage holds.
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
    again: tuple[str, ...] = ()
    tied: tuple[str, ...] = ()


def cut_stages(program: Program, parallel: ParallelSettings) -> tuple[StageProgram, ...]:
    """The stages of a plan, in order; one where the plan does not cut.

    Raises SettingsError for a tie that leads into a block on another stage.
    """
    return _Cutter(program, place_units(program, parallel), count_stages(program, parallel)).run()


@dataclass(slots=True)
class _Stage:
    """A stage in the making: its own statements, what it computes again, what it reads."""

    index: int
    own: list[Statement] = field(default_factory=list)
    again: list[Statement] = field(default_factory=list)
    reads: set[int] = field(default_factory=set)


class _Cutter:
    def __init__(self, program: Program, placed: Sequence[int], num_stages: int) -> None:
        self.program, self.forward = program, program.forward
        self.stages = [_Stage(i) for i in range(num_stages)]
        self.params = {id(value): value for value in self.forward.params}
        self.values: dict[int, Value] = dict(self.params)
        self.maker: dict[int, Statement] = {}
        self.home: dict[int, int] = {}
        self.kinds: dict[int, tuple[bool, bool]] = {k: (True, False) for k in self.params}
        self.totals: dict[int, list[tuple[Value, int]]] = {}
        self._place(placed)
        gradients = values_with_gradient(program)
        self.gradients = set(gradients)

    # ---- statements to stages -------------------------------------------------------------

    def _place(self, placed: Sequence[int]) -> None:
        """Loops are cut into what each stage runs of them."""
        atoms = list(zip(atoms_of(self.program), placed, strict=True))
        at = 0
        while at < len(atoms):
            atom, stage = atoms[at]
            if not isinstance(atom.statement, Repeat):
                self._add(atom.statement, stage)
                at += 1
                continue
            loop = atom.statement
            stages = [s for a, s in atoms[at : at + loop.count] if a.statement is loop]
            self._add_loop(loop, stages)
            at += len(stages)

    def _add(self, statement: Statement, stage: int) -> None:
        self.stages[stage].own.append(statement)
        inputs, weights = False, _has_weights(statement)
        for value in reads_of(statement):
            of_input, of_weight = self.kinds[id(value)]
            inputs, weights = inputs or of_input, weights or of_weight
        for value in results_of(statement):
            self.values[id(value)] = value
            self.maker[id(value)] = statement
            self.home[id(value)] = stage
            self.kinds[id(value)] = (inputs, weights)

    def _add_loop(self, loop: Repeat, stages: Sequence[int]) -> None:
        runs = [(s, stages.index(s), stages.count(s)) for s in dict.fromkeys(stages)]
        if len(runs) == 1:
            self._add(loop, stages[0])
            self.totals.update({id(v): [(v, stages[0])] for _, v in loop.losses})
            return
        inits = loop.inits
        terms: dict[str, list[tuple[Value, int]]] = {name: [] for name, _ in loop.losses}
        for stage, start, count in runs:
            part = self._part(loop, inits, start, count, is_last=stage == runs[-1][0])
            self._add(part, stage)
            inits = part.results
            for name, value in part.losses:
                terms[name].append((value, stage))
        for name, total in loop.losses:
            self.values[id(total)] = total
            self.kinds[id(total)] = (True, True)
            self.totals[id(total)] = terms[name]

    def _part(
        self, loop: Repeat, inits: tuple[Value, ...], start: int, count: int, *, is_last: bool
    ) -> Repeat:
        """Iterations start .. start + count, with bodies of their own numbering."""
        pattern = loop.pattern[start : start + count]
        used = list(dict.fromkeys(pattern))
        bodies = tuple(_fresh(loop.bodies[variant]) for variant in used)
        results = loop.results if is_last else tuple(_like(v) for v in loop.results)
        losses = tuple((name, _like(value)) for name, value in loop.losses)
        names = {name for body in bodies for name, _ in body.losses}
        return replace(
            loop,
            count=count,
            first=loop.first + start,
            pattern=tuple(used.index(variant) for variant in pattern),
            bodies=bodies,
            inits=inits,
            results=results,
            losses=tuple((name, value) for name, value in losses if name in names),
            every=0,
        )

    # ---- what crosses ---------------------------------------------------------------------

    def run(self) -> tuple[StageProgram, ...]:
        losses = losses_by_stage(self.forward, self.totals, self.home, self.maker, self.stages)
        self._gradients_of_parts()
        outputs = self._outputs()
        for stage in self.stages:
            for statement in stage.own:
                stage.reads.update(id(v) for v in reads_of(statement))
            stage.reads.update(id(v) for v in outputs[stage.index])
            stage.reads.update(id(v) for _, v in losses[stage.index])
            self._compute_again(stage)
        names = self._names()
        made = [self._finish(stage, names, outputs, losses) for stage in self.stages]
        return _with_ties(made)

    def _gradients_of_parts(self) -> None:
        """Values of cut loops are like those of the whole loop."""
        for key, value in self.values.items():
            if self.kinds[key][1] and value.type.dtype == FLOAT:
                self.gradients.add(key)

    def _outputs(self) -> list[list[Value]]:
        """The model's results, each on the stage that makes it."""
        found: list[list[Value]] = [[] for _ in self.stages]
        for value in self.forward.results:
            home = self.home.get(id(value), len(self.stages) - 1)
            found[home].append(value)
        return found

    def _is_sent(self, key: int) -> bool:
        of_input, of_weight = self.kinds[key]
        return key not in self.params and (
            (of_input and of_weight) or isinstance(self.maker.get(key), Repeat)
        )

    def _compute_again(self, stage: _Stage) -> None:
        """The makers of what this stage reads, was made before, and is not sent."""
        own = {id(s) for s in stage.own}
        wanted: dict[int, Statement] = {}
        stack = list(stage.reads)
        while stack:
            key = stack.pop()
            maker = self.maker.get(key)
            if maker is None or id(maker) in own or self._is_sent(key) or id(maker) in wanted:
                continue
            wanted[id(maker)] = maker
            inputs = [id(value) for value in reads_of(maker)]
            stage.reads.update(inputs)
            stack += inputs
        order = [s for other in self.stages for s in other.own if id(s) in wanted]
        stage.again = _with_fused(order, self.stages)

    def _made(self, stage: _Stage) -> set[int]:
        return {id(v) for s in (*stage.again, *stage.own) for v in results_of(s)}

    def _received(self, index: int) -> list[int]:
        """ids of what a stage gets from the one before: read here or later, made earlier."""
        found: dict[int, None] = {}
        for stage in self.stages[index:]:
            for key in sorted(stage.reads, key=self._order):
                if self._is_sent(key) and self.home[key] < index:
                    found[key] = None
        return list(found)

    def _order(self, key: int) -> int:
        return list(self.values).index(key) if key in self.values else -1

    def _names(self) -> dict[int, str]:
        """What each crossing value is called between stages: the user's name where it is free."""
        taken = {value.name for value in self.forward.params}
        names: dict[int, str] = {}
        for index in range(1, len(self.stages)):
            for key in self._received(index):
                if key in names:
                    continue
                value = self.values[key]
                base = name = value.alias or value.name or "h"
                number = 1
                while name in taken:
                    number += 1
                    name = f"{base}{number}"
                taken.add(name)
                names[key] = name
        return names

    # ---- programs -------------------------------------------------------------------------

    def _finish(
        self,
        stage: _Stage,
        names: Mapping[int, str],
        outputs: Sequence[Sequence[Value]],
        losses: Sequence[Sequence[tuple[str, Value]]],
    ) -> StageProgram:
        index = stage.index
        arriving = self._received(index) if index else []
        leaving = self._received(index + 1) if index + 1 < len(self.stages) else []
        made = self._made(stage)
        makes = [key for key in leaving if key in made]
        swapped = {key: self._param(key, names[key]) for key in arriving}
        body = [replace_reads(s, swapped) for s in (*stage.again, *stage.own)]
        body = [*_holders(body, self.forward), *body]
        inputs = [v for v in self.forward.params if id(v) in stage.reads]
        results = [self.values[key] for key in makes] + list(outputs[index])
        results = [swapped.get(id(value), value) for value in results]
        found_losses = tuple((n, swapped.get(id(v), v)) for n, v in losses[index])
        function = self._function(index, inputs, list(swapped.values()), results, found_losses, body)
        program = replace(
            self.program, functions=[*_callees(function, self.program), function], counts={}
        )
        return StageProgram(
            index=index,
            program=program,
            inputs=tuple(value.name for value in inputs),
            receives=tuple(
                Crossing(names[key], value, key in self.gradients)
                for key, value in swapped.items()
            ),
            makes=tuple(names[key] for key in makes),
            sends=tuple(names[key] for key in leaving),
            outputs=tuple(value.name for value in outputs[index]),
            losses=tuple(name for name, _ in found_losses),
            units=units_text(body),
            again=tuple(v.name for s in stage.again for v in results_of(s) if v.name),
        )

    def _param(self, key: int, name: str) -> Value:
        value = self.values[key]
        return Value(name, value.type, value.span)

    def _function(
        self,
        index: int,
        inputs: Sequence[Value],
        received: Sequence[Value],
        results: Sequence[Value],
        losses: tuple[tuple[str, Value], ...],
        body: list[Statement],
    ) -> Function:
        whole = self.forward
        loss_only = {id(whole.params[i]) for i in whole.loss_only}
        used = (u.weight for s in _all(body) if isinstance(s, Op) for u in s.weights if not u.tied)
        alone = len(self.stages) == 1
        return replace(
            whole,
            name=whole.name,
            symbol=whole.symbol if alone else f"{whole.symbol}Stage{index}",
            params=(*inputs, *received),
            optional=frozenset(),
            loss_only=frozenset(i for i, v in enumerate(inputs) if id(v) in loss_only),
            results=tuple(results),
            losses=losses,
            statements=body,
            weights=list(used),
            draws=any(getattr(s, "site", None) is not None for s in body),
        )


def _has_weights(statement: Statement) -> bool:
    if isinstance(statement, Op):
        return bool(statement.weights)
    if isinstance(statement, Call):
        return any(_has_weights(s) for s in statement.function.statements)
    if isinstance(statement, Repeat):
        return any(_has_weights(s) for body in statement.bodies for s in body.statements)
    return False


def _with_fused(order: list[Statement], stages: Sequence[_Stage]) -> list[Statement]:
    """Operations written as one call that are no longer all here stand alone."""
    found: list[Statement] = []
    for statement in order:
        if isinstance(statement, Op) and statement.fuse is not None:
            mates = [
                s
                for stage in stages
                for s in stage.own
                if isinstance(s, Op) and s.fuse == statement.fuse
            ]
            if not all(any(s is other for other in order) for s in mates):
                statement = replace(statement, fuse=None)
        found.append(statement)
    return found


def _like(value: Value) -> Value:
    return Value(value.name, value.type, value.span, value.alias)


def _fresh(body: Body) -> Body:
    """A body with values of its own: two stages' loops may stand in one file of tests."""
    return body


def _all(statements: Iterable[Statement]) -> list[Statement]:
    found: list[Statement] = []
    for statement in statements:
        found.append(statement)
        if isinstance(statement, Repeat):
            for body in statement.bodies:
                found += _all(body.statements)
    return found


def _callees(function: Function, program: Program) -> list[Function]:
    """The functions that a stage calls, callees first."""
    needed: set[int] = set()
    stack = [function]
    while stack:
        for statement in statements_of(stack.pop()):
            if isinstance(statement, Call) and id(statement.function) not in needed:
                needed.add(id(statement.function))
                stack.append(statement.function)
    return [f for f in program.functions if id(f) in needed]


def _holders(body: Sequence[Statement], forward: Function) -> list[Statement]:
    """Owners of the weights that the stage uses although their layers are elsewhere."""
    statements = _all(body)
    calls = {s.member for s in statements if isinstance(s, Call)}
    owned = {
        id(use.weight)
        for s in statements
        if isinstance(s, Op)
        for use in s.weights
        if not use.tied
    }
    found: dict[int, Statement] = {}
    for statement in statements:
        for use in statement.weights if isinstance(statement, Op) else ():
            if not use.tied or id(use.weight) in owned or id(use.weight) in found:
                continue
            if use.path and use.path[0][0] in calls:
                continue
            if use.path:
                raise SettingsError(
                    f"`{use.path[0][0]}` holds a weight that another stage uses, too "
                    f"({statement.span.source.name}:{statement.span.line}); cut the model so that "
                    "both are on one stage"
                )
            found[id(use.weight)] = _holder(use.weight, statement)
    return list(found.values())


def _holder(weight: Weight, user: Statement) -> Op:
    use = WeightUse("weight", weight)
    return Op("hold", (), (), {}, (use,), weight.member, user.span)


def _with_ties(stages: Sequence[StageProgram]) -> tuple[StageProgram, ...]:
    """Name the parameters that more than one stage holds."""
    from giantdsl.ir.parameters import iter_parameters

    names = [[p.name for p in iter_parameters(stage.program)] for stage in stages]
    counts: dict[str, int] = {}
    for held in names:
        for name in dict.fromkeys(held):
            counts[name] = counts.get(name, 0) + 1
    return tuple(
        replace(stage, tied=tuple(n for n in dict.fromkeys(held) if counts[n] > 1))
        for stage, held in zip(stages, names, strict=True)
    )


def units_text(statements: Sequence[Statement]) -> str:
    """`tok, pos, decoder 0-5`: the layers of a stage in order."""
    words: dict[str, None] = {}
    for statement in statements:
        if isinstance(statement, Repeat):
            members = [s.member for body in statement.bodies for s in body.statements if isinstance(s, Call)]
            last = statement.first + statement.count - 1
            span = str(last) if statement.count == 1 else f"{statement.first}-{last}"
            for name in dict.fromkeys(members) or ["loop"]:
                words[f"{name} {span}"] = None
        elif isinstance(statement, Call):
            words[statement.member] = None
        elif isinstance(statement, Op) and statement.layer and statement.kind != "hold":
            words[statement.layer] = None
    return ", ".join(words) or "nothing with weights"
