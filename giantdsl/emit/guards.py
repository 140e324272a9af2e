"""What only losses need runs only when their labels were given."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from giantdsl.emit.code import Code
from giantdsl.emit.scope import Scope
from giantdsl.ir.nodes import Call, Function, Op, Repeat, Statement, Value, results_of

Guard = tuple[str, ...]


class Guards:
    """Which statements of a function stand behind `if labels is not None:`, and its losses.

    `names` are the variables of the function's loss-only parameters by position.
    """

    def __init__(self, function: Function, names: dict[int, str], is_top: bool) -> None:
        self._function, self._is_top = function, is_top
        self._tainted = _tainted(function, names)
        self._written: set[str] = set()
        needed = _needed(function.statements, function.results)
        self._loss_guards: dict[str, Guard] = {}
        for name, value in function.losses:
            guard = tuple(sorted(self._tainted.get(id(value), frozenset())))
            self._loss_guards[name] = guard
            if not guard:
                needed |= _needed(function.statements, [value])
        self._needed = needed
        self._fed = {name: _needed(function.statements, [value]) for name, value in function.losses}

    def groups(self, statements: Sequence[Statement]) -> Iterator[tuple[Guard, list[Statement]]]:
        """Runs of statements behind the same condition, in order."""
        current: Guard = ()
        group: list[Statement] = []
        for statement in statements:
            guard = self._guard_of(statement)
            if guard != current and group:
                yield current, group
                group = []
            current = guard
            group.append(statement)
        if group:
            yield current, group

    def _guard_of(self, statement: Statement) -> Guard:
        made = [id(value) for value in results_of(statement)]
        if not made or any(key in self._needed for key in made):
            return ()
        wanted = {
            self._loss_guards[name]
            for name, fed in self._fed.items()
            if any(key in fed for key in made)
        }
        if len(wanted) == 1:
            return wanted.pop()
        own = frozenset().union(*(self._tainted.get(key, frozenset()) for key in made))
        return tuple(sorted(own))

    # ---- losses ---------------------------------------------------------------------------

    def begin(self, scope: Scope) -> None:
        """Before anything else: no losses yet."""
        if self._is_top:
            if self._function.losses:
                scope.write("self.losses = {}")
            return
        for name, value in self._function.losses:
            if self._loss_guards[name]:
                variable = scope.new_name(name)
                scope.write(f"{variable} = 0.0")
                scope.bind(value, variable)

    def finish(self, scope: Scope, guard: Guard) -> None:
        """Losses behind this condition whose values are there now."""
        for name, value in self._function.losses:
            if self._loss_guards[name] == guard and name not in self._written:
                if scope.is_known(value):
                    self._store(scope, name, value)

    def end(self, scope: Scope) -> None:
        """The losses not stored yet, each behind its condition if it has one."""
        open_guard: Guard = ()
        rest = [(n, v) for n, v in self._function.losses if n not in self._written]
        for name, value in sorted(rest, key=lambda item: self._loss_guards[item[0]]):
            guard = self._loss_guards[name]
            if guard and not self._is_top and scope.is_known(value):
                continue
            if guard and guard != open_guard:
                scope.write(f"if {' and '.join(f'{n} is not None' for n in guard)}:")
            open_guard = guard
            scope.depth += bool(guard)
            self._store(scope, name, value)
            scope.depth -= bool(guard)

    def _store(self, scope: Scope, name: str, value: Value) -> None:
        self._written.add(name)
        code = scope.code(value)
        if self._is_top:
            scope.write(f'self.losses["{name}"] = {code.text}')
        elif self._loss_guards[name]:
            variable = scope.name_for(name)
            if code.text != variable:
                scope.write(f"{variable} = {code.text}")
            scope.bind(value, variable)

    def returned(self, scope: Scope) -> list[Code]:
        """The losses a block returns after its results."""
        return [] if self._is_top else [scope.code(value) for _, value in self._function.losses]


def _needed(statements: Sequence[Statement], wanted: Sequence[Value]) -> set[int]:
    """ids of the values of this level that `wanted` are computed from."""
    needed = {id(value) for value in wanted}
    for statement in reversed(statements):
        if any(id(value) in needed for value in results_of(statement)):
            needed |= _reads(statement)
    return needed


def _reads(statement: Statement) -> set[int]:
    if isinstance(statement, Op):
        return {id(value) for value in statement.inputs}
    if isinstance(statement, Call):
        return {id(value) for value in statement.inputs if value is not None}
    if isinstance(statement, Repeat):
        found = {id(value) for value in statement.inits}
        for body in statement.bodies:
            for inner in body.statements:
                found |= _reads(inner)
            found |= {id(v) for v in body.yields} | {id(v) for _, v in body.losses}
        return found
    return set()


def _tainted(function: Function, names: dict[int, str]) -> dict[int, frozenset[str]]:
    """For each value, the loss-only parameters it cannot be computed without."""
    taint: dict[int, frozenset[str]] = {
        id(function.params[i]): frozenset({name}) for i, name in names.items()
    }

    def of(values: Sequence[Value | None]) -> frozenset[str]:
        found = (taint.get(id(v), frozenset()) for v in values if v is not None)
        return frozenset().union(*found)

    def visit(statements: Sequence[Statement]) -> None:
        for statement in statements:
            if isinstance(statement, Op):
                mark(statement.results, of(statement.inputs))
            elif isinstance(statement, Call):
                optional = statement.function.loss_only
                always = [v for i, v in enumerate(statement.inputs) if i not in optional]
                mark(statement.results, of(always))
                needs = loss_needs(statement.function)
                for value, positions in zip(statement.losses, needs, strict=True):
                    extra = [v for i, v in enumerate(statement.inputs) if i in positions]
                    mark([value], of([*always, *extra]))
            elif isinstance(statement, Repeat):
                for body in statement.bodies:
                    visit(body.statements)
                mark(statement.results, of(statement.inits))
                for name, total in statement.losses:
                    terms = [v for body in statement.bodies for n, v in body.losses if n == name]
                    mark([total], of(terms))

    def mark(values: Sequence[Value], found: frozenset[str]) -> None:
        if found:
            taint.update(dict.fromkeys((id(v) for v in values), found))

    visit(function.statements)
    return taint


def loss_needs(function: Function) -> list[frozenset[int]]:
    """For each loss, the loss-only parameters (by position) it cannot be computed without."""
    names = {i: str(i) for i in function.loss_only}
    taint = _tainted(function, names)
    return [
        frozenset(int(name) for name in taint.get(id(value), frozenset()))
        for _, value in function.losses
    ]
