"""The variables of a forward pass while it is being written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from giantdsl.attrs import Attr
from giantdsl.emit.code import Code, variable
from giantdsl.emit.held import Held
from giantdsl.emit.lifetimes import overwritten
from giantdsl.emit.names import variable_name
from giantdsl.emit.wrap import MAX_WIDTH, wrap
from giantdsl.ir.nodes import (
    Call,
    Function,
    Op,
    Program,
    Repeat,
    Statement,
    Value,
    results_of,
    statements_of,
)
from giantdsl.ir.parameters import extent
from giantdsl.ir.types import ROUTE, AxisKind, base_axis
from giantdsl.source import Span

_MAX_INLINE = 76
_INDEX_LETTERS = "ijklmnop"


class Scope:
    """Lines so far, what each value is called, and expressions that wait to be used.

    A value that the user named, or that is used more than once, gets a variable. Any other is
    kept as an expression and put where it is used; it is written down before a variable that it
    reads changes.
    """

    def __init__(
        self,
        program: Program,
        function: Function,
        reserved: frozenset[str],
        static: dict[str, Attr],
        held: Held,
    ) -> None:
        self.program, self.function = program, function
        self.splits, self.linear = held.splits, held.linear
        self.reserved, self.static = reserved, static
        self.lines: list[str] = []
        self.spans: list[Span] = []
        self.at = function.span
        self.absent: frozenset[str] = frozenset()
        self.depth = 2
        self.noise = "noise"
        self.used_static: set[str] = set()
        self.members: dict[str, str] = {}
        self.device = ""
        self._codes: dict[int, Code] = {}
        self._pending: dict[int, tuple[Value, Code]] = {}
        self._taken = {self.name_for(name) for name in _names(function)}
        self.indices = _free_indices({*self._taken, *(name for name, _ in function.losses)})
        self._overwritten = overwritten(function, self.name_for)
        self._kept: dict[int, str] = {}
        self._sources: dict[str, tuple[str, int]] = {}
        self._uses = count_uses(function)
        self._shown = {axis: own for own, axis in reversed(function.generics.items())}

    # ---- lines ----------------------------------------------------------------------------

    def write(self, line: str, comment: str = "") -> None:
        """A line at the current depth; a comment goes along where there is room."""
        text = "    " * self.depth + line
        if comment and len(text) + 2 + len(comment) <= MAX_WIDTH:
            self.lines.append(f"{text}  {comment}")
        else:
            self.lines += wrap(text)
        self.spans += [self.at] * (len(self.lines) - len(self.spans))

    def shape(self, value: Value) -> str:
        """A comment with the shape, in the block's own names for its axes."""
        axes = value.type.axes if value.type.dtype != ROUTE else ()
        return f"# [{', '.join(self._shown.get(axis, axis) for axis in axes)}]" if axes else ""

    def name_for(self, hint: str) -> str:
        return variable_name(hint or "h", self.reserved)

    def new_name(self, hint: str) -> str:
        """A variable that nothing uses yet."""
        base = name = self.name_for(hint)
        number = 1
        while name in self._taken:
            number += 1
            name = f"{base}{number}"
        self._taken.add(name)
        return name

    def variable_of(self, value: Value) -> str:
        """The variable of a value with a name; its own if that of its name changes too early."""
        if id(value) not in self._overwritten:
            return self.name_for(value.name)
        if id(value) not in self._kept:
            self._kept[id(value)] = self.new_name(value.alias or value.name)
        return self._kept[id(value)]

    # ---- values ---------------------------------------------------------------------------

    def is_overwritten(self, value: Value) -> bool:
        """Whether the variable of its name changes while the value is needed."""
        return id(value) in self._overwritten

    def keep(self, values: Iterable[Value]) -> None:
        """Copy what is bound to a variable that will change too early."""
        for value in values:
            if self.is_overwritten(value):
                name = self.variable_of(value)
                self.write(f"{name} = {self._codes[id(value)].text}")
                self.bind(value, name)

    def set_param(self, value: Value, has_sizes: bool) -> str:
        """A parameter of the function; `has_sizes` when it is never None."""
        name = self.name_for(value.name)
        self.bind(value, name, has_sizes)
        if has_sizes and value.type.dtype != ROUTE and not self.device:
            self.device = f"{name}.device"
        return name

    def bind(self, value: Value, name: str, has_sizes: bool = True) -> None:
        """From here on the variable `name` holds the value."""
        self._taken.add(name)
        self._codes[id(value)] = variable(name)
        if has_sizes and value.type.dtype != ROUTE:
            for position, axis in enumerate(value.type.axes):
                self._sources.setdefault(base_axis(axis), (name, position))

    def alias(self, value: Value, other: Value) -> None:
        self._codes[id(value)] = self._codes[id(other)]

    def define(self, value: Value, code: Code) -> None:
        """The value is this expression: give it a variable, or keep it for its one use."""
        once = self._uses[id(value)] == 1
        if value.name or not once or len(code.text) > _MAX_INLINE:
            self.assign(value, code, self.variable_of(value) if value.name else self.new_name("h"))
        else:
            self._pending[id(value)] = (value, code)

    def assign(self, value: Value, code: Code, name: str) -> None:
        if code.text != name:
            self.before_change(name)
            self.write(f"{name} = {code.text}", self.shape(value))
        self.bind(value, name)

    def step(self, code: Code) -> Code:
        """A line of its own for the first part of a long expression."""
        name = self.new_name("h")
        self.write(f"{name} = {code.text}")
        return variable(name)

    def code(self, value: Value) -> Code:
        """The value as an expression; one that waited is used up."""
        waiting = self._pending.pop(id(value), None)
        return waiting[1] if waiting is not None else self._codes[id(value)]

    def codes(self, values: Iterable[Value]) -> list[Code]:
        return [self.code(value) for value in values]

    def is_known(self, value: Value) -> bool:
        return id(value) in self._codes or id(value) in self._pending

    def before_change(self, name: str) -> None:
        """Write down what waits and reads a variable that is about to change."""
        for key, (value, code) in list(self._pending.items()):
            if name in code.reads and key in self._pending:
                del self._pending[key]
                self.assign(value, code, self.new_name("h"))

    def settle(self) -> None:
        """Write down everything that waits: a loop or a condition begins."""
        for key, (value, code) in list(self._pending.items()):
            if key in self._pending:
                del self._pending[key]
                self.assign(value, code, self.new_name(value.name or "h"))

    # ---- facts ----------------------------------------------------------------------------

    def extent(self, axis: str) -> int:
        return extent(self.program, axis)

    def slices(self, axis: str, mesh_axis: str) -> str:
        """How `axis` is divided over one mesh axis."""
        return f"self.axes.{axis}_{mesh_axis}"

    def group(self, mesh_axis: str) -> str:
        return f"self.axes.{mesh_axis}"

    def size(self, axis: str) -> Code:
        """The length of an axis: a constant, or a tensor's size where it may be shorter.

        Of a divided sequence it is the whole length, whatever part a tensor here has.
        """
        split = self.splits.get(base_axis(axis))
        if split is not None and split.sequence:
            return Code(f"{self.slices(split.axis, split.mesh[0])}.whole")
        found = self._sources.get(base_axis(axis))
        kind = self.program.axes[base_axis(axis)].kind
        if found is None or kind is AxisKind.FEATURE:
            return Code(str(self.extent(axis)))
        return Code(f"{found[0]}.size({found[1]})", frozenset({found[0]}))

    def attr(self, op: Op, key: str) -> str:
        """An attribute as Python: the class's own where the block's argument of that name is it."""
        value = op.attrs[key]
        if key in self.static and self.static[key] == value:
            self.used_static.add(key)
            return f"self.{key}"
        return repr(value)

    def member(self, name: str) -> str:
        return self.members.get(name, f"self.{name}")

    def snapshot(self) -> dict[str, tuple[str, int]]:
        return dict(self._sources)

    def restore(self, sources: dict[str, tuple[str, int]]) -> None:
        self._sources = sources


def _free_indices(taken: set[str]) -> list[str]:
    """What the indices of nested loops are called: letters that the user has no value for."""
    letters = (*_INDEX_LETTERS, *(2 * letter for letter in _INDEX_LETTERS))
    return [index for index in letters if not {index, f"noise_{index}"} & taken]


def count_uses(function: Function) -> Counter[int]:
    """How often each value is read; a read of an outer value in a loop counts as two."""
    uses: Counter[int] = Counter()

    def visit(statements: Sequence[Statement], inner: set[int] | None) -> None:
        def read(value: Value | None) -> None:
            if value is not None:
                uses[id(value)] += 1 if inner is None or id(value) in inner else 2

        for statement in statements:
            if isinstance(statement, Op | Call):
                for value in statement.inputs:
                    read(value)
            elif isinstance(statement, Repeat):
                for value in statement.inits:
                    read(value)
                for body in statement.bodies:
                    made = {id(r) for s in body.statements for r in results_of(s)}
                    visit(body.statements, made)
                    for value in (*body.yields, *(v for _, v in body.losses)):
                        uses[id(value)] += 1

    visit(function.statements, None)
    for value in (*function.results, *(v for _, v in function.losses)):
        uses[id(value)] += 1
    return uses


def _names(function: Function) -> set[str]:
    """Every name the user gave to a value of a function, but for its losses."""
    made = [function.params]
    made += [s.results for s in statements_of(function) if isinstance(s, Op | Call | Repeat)]
    losses = {id(value) for _, value in function.losses}
    return {v.name for values in made for v in values if v.name and id(v) not in losses}
