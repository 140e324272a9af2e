"""Values whose variable changes while they are still needed.

`skip = x` makes no new value, and `x = norm(x)` makes a second one of the name `x`: both are alive
until `x + skip`. The first then needs a variable of its own. Loops count: a value that is read in
a loop is needed until the loop ends, and the variables that a loop carries change when it begins.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from giantdsl.ir.nodes import Call, Function, Op, Repeat, Statement, Value

_END = float("inf")


def overwritten(function: Function, variable: Callable[[str], str]) -> frozenset[int]:
    """ids of the values that cannot stay in the variable of their name.

    Args:
      variable: the variable that a value of this name goes into.
    """
    return _Lifetimes(variable).of(function)


class _Lifetimes:
    def __init__(self, variable: Callable[[str], str]) -> None:
        self._variable = variable
        self._now = 0
        self._loops: list[int] = []
        self._home: dict[int, int] = {}
        self._names: dict[int, str] = {}
        self._start: dict[int, int] = {}
        self._last: dict[int, float] = {}
        self._inside: dict[int, set[int]] = defaultdict(set)
        self._changes: list[tuple[int, str, int]] = []

    def of(self, function: Function) -> frozenset[int]:
        self._define(function.params)
        self._visit(function.statements)
        for value in (*function.results, *(v for _, v in function.losses)):
            self._last[id(value)] = _END
        by_name: dict[str, list[int]] = defaultdict(list)
        for key, name in self._names.items():
            by_name[name].append(key)
        return frozenset(
            key
            for at, name, changed in self._changes
            for key in by_name[name]
            if key != changed and self._start[key] <= at < self._last.get(key, -1)
        )

    def _visit(self, statements: Sequence[Statement]) -> None:
        fuse: int | None = None
        for statement in statements:
            if isinstance(statement, Op):
                # What was written as one call reads everything before it writes anything.
                same = fuse is not None and statement.fuse == fuse
                self._now += not same
                fuse = statement.fuse
                self._read(statement.inputs)
                self._define(statement.results)
                if statement.kind == "rename":
                    self._follow(statement)
            elif isinstance(statement, Call):
                self._now += 1
                self._read(v for v in statement.inputs if v is not None)
                self._define((*statement.results, *statement.losses))
            elif isinstance(statement, Repeat):
                self._repeat(statement)

    def _follow(self, op: Op) -> None:
        """A renamed axis is no work: the result may stay where the input is."""
        name = self._names.get(id(op.inputs[0]))
        if name is not None and not op.result.name:
            self._names[id(op.result)] = name

    def _repeat(self, loop: Repeat) -> None:
        self._now += 1
        key = self._now
        self._read(loop.inits)
        self._change(loop.results)
        self._loops.append(key)
        for body in loop.bodies:
            self._now += 1
            self._define(body.params)
            self._visit(body.statements)
            self._now += 1
            self._read((*body.yields, *(v for _, v in body.losses)))
        self._loops.pop()
        self._now += 1
        for value in self._inside.pop(key, ()):
            self._last[value] = self._now
        self._now += 1
        self._define((*loop.results, *(v for _, v in loop.losses)))

    def _define(self, values: Iterable[Value]) -> None:
        values = tuple(values)
        for value in values:
            self._start[id(value)] = self._now
            self._home[id(value)] = len(self._loops)
            if value.name:
                self._names[id(value)] = self._variable(value.name)
        self._change(values)

    def _change(self, values: Iterable[Value]) -> None:
        for value in values:
            if value.name:
                self._changes.append((self._now, self._variable(value.name), id(value)))

    def _read(self, values: Iterable[Value]) -> None:
        for value in values:
            self._last[id(value)] = self._now
            home = self._home.get(id(value), 0)
            if home < len(self._loops):
                self._inside[self._loops[home]].add(id(value))
