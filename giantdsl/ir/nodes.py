"""The program a spec means: functions of statements over named-axis values.

Blocks become functions, one for each way a block is used (its axes, its compile-time
arguments, its `per` axes); a `repeat` stays a loop. Nothing is unrolled, so the size of a
program does not grow with the number of layers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from giantdsl.attrs import Attr
from giantdsl.ir.types import Axis, TensorType
from giantdsl.source import Span


@dataclass(eq=False, slots=True)
class Value:
    """Something computed once. `name` is the user's, or "" where the spec gave none.

    `alias` is a second name the user gave it: `skip = x`.
    """

    name: str
    type: TensorType
    span: Span
    alias: str = ""


@dataclass(frozen=True, slots=True)
class Init:
    """How a weight starts: normal(std), uniform(bound), constant(value), xavier, kaiming."""

    kind: str
    value: float = 0.0


@dataclass(eq=False, slots=True)
class Weight:
    """A parameter of the function that owns it.

    Its logical name is the path of the function's uses, then `member`, the indices of the
    loops around it, then `leaf`: `decoder.3.attention` + `q` + `weight`; a bare `param` has
    the leaf "". `axes` are `per` axes, then `out_axes`, then `in_axes`; the plain module
    stores it as [*per, prod(out_axes), prod(in_axes)] like torch does (embedding tables as
    [prod(in_axes), prod(out_axes)]: the index axis is the in axis and comes first in `axes`).
    `lr` multiplies the learning rate; `decay` None means: decay if the whole tensor has two or
    more dimensions as the plain module stores it.
    """

    member: str
    leaf: str
    axes: tuple[str, ...]
    per: tuple[str, ...]
    out_axes: tuple[str, ...]
    in_axes: tuple[str, ...]
    init: Init
    lr: float
    decay: bool | None
    dtype: str | None
    span: Span


@dataclass(frozen=True, slots=True)
class WeightUse:
    """A weight in the role an operation gives it ("weight", "bias").

    `tied` is set when another layer owns it: `path` then leads from the using function to the
    function that owns the weight, as (member, loop indices) steps; empty for the same function.
    `indices` are the loop indices of the owner's own layer, when it stands in a loop that does
    not enclose the use. `copied` are the mesh axes over which this use sums its gradient itself,
    because other uses of the weight have all of theirs on every rank.
    """

    role: str
    weight: Weight
    tied: bool = False
    path: tuple[tuple[str, tuple[int, ...]], ...] = ()
    indices: tuple[int, ...] = ()
    copied: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Hold:
    """A weight of a layer on another stage, kept because layers here are tied to it.

    `symbol` is the function that owns it in the whole program, "" for `forward`; `path` leads
    there from `forward`, by members.
    """

    weight: Weight
    symbol: str
    path: tuple[str, ...] = ()


@dataclass(eq=False, slots=True)
class Op:
    """One operation of `sema/primitives.py`.

    `layer` names the member that holds its weights ("" if it has none). Neighbouring `linear`
    ops with the same `fuse` number were written as one call and are one matrix product.
    `site` numbers the operations of a function that draw random numbers (dropout), else None.
    """

    kind: str
    inputs: tuple[Value, ...]
    results: tuple[Value, ...]
    attrs: dict[str, Attr]
    weights: tuple[WeightUse, ...]
    layer: str
    span: Span
    fuse: int | None = None
    site: int | None = None

    @property
    def result(self) -> Value:
        return self.results[0]

    def weight(self, role: str) -> WeightUse | None:
        return next((use for use in self.weights if use.role == role), None)


@dataclass(eq=False, slots=True)
class Call:
    """A block used as layer `member`. An optional tensor that was not given is None.

    `losses` are the callee's losses as seen here, in the callee's order. `site` as in Op, for
    callees that draw random numbers.
    """

    function: Function
    inputs: tuple[Value | None, ...]
    results: tuple[Value, ...]
    losses: tuple[Value, ...]
    member: str
    span: Span
    site: int | None = None


@dataclass(eq=False, slots=True)
class StageMark:
    """A stage boundary written in the spec. Only in `forward`."""

    span: Span


@dataclass(eq=False, slots=True)
class Body:
    """What one iteration of a loop does: `params` in, `yields` out, `losses` added up."""

    params: tuple[Value, ...]
    statements: list[Statement]
    yields: tuple[Value, ...]
    losses: tuple[tuple[str, Value], ...]


@dataclass(eq=False, slots=True)
class Repeat:
    """A loop of a known number of iterations.

    Iteration i runs `bodies[pattern[i]]`: one body unless something depends on the index.
    `inits` enter the first iteration, `results` leave the last. `losses` are (name, sum over
    all iterations). `every` > 0: a stage boundary after each `every`-th iteration. `first` is the
    index of the first iteration: above 0 where a stage runs a later part of a loop.
    """

    index: str
    count: int
    shared: bool
    bodies: tuple[Body, ...]
    pattern: tuple[int, ...]
    inits: tuple[Value, ...]
    results: tuple[Value, ...]
    losses: tuple[tuple[str, Value], ...]
    every: int
    span: Span
    site: int | None = None
    first: int = 0

    @property
    def indices(self) -> range:
        return range(self.first, self.first + self.count)


Statement = Op | Call | Repeat | StageMark


@dataclass(eq=False, slots=True)
class Function:
    """A block under one binding of its axes and compile-time arguments, or `forward`.

    `symbol` is unique in the program and good as a class name. `optional` marks parameters
    that may be None in some call; `loss_only` those (by position) that nothing but losses needs.
    `static` are the compile-time arguments by name. `weights` are its own, in order of use.
    `holds` are those of other stages that it is tied to: only in `forward` of a stage's program.
    """

    name: str
    symbol: str
    params: tuple[Value, ...]
    optional: frozenset[int]
    loss_only: frozenset[int]
    results: tuple[Value, ...]
    losses: tuple[tuple[str, Value], ...]
    statements: list[Statement]
    weights: list[Weight]
    static: dict[str, Attr]
    generics: dict[str, str]
    per: tuple[str, ...]
    draws: bool
    span: Span
    holds: tuple[Hold, ...] = ()


@dataclass(frozen=True, slots=True)
class Count:
    """What a loss's mean divides by, so that microbatches can be weighed.

    kind "rows": proportional to the number of batch rows. kind "valid": labels that are not
    `ignore`, each counted with `weight` if there is one; both are values of `forward` that
    depend on its inputs only.
    """

    kind: str
    labels: Value | None = None
    ignore: int | None = None
    weight: Value | None = None


@dataclass(eq=False, slots=True)
class Extern:
    """A Python operation: `target` is "module:function"; it may be split along `along`."""

    name: str
    target: str
    along: tuple[str, ...]
    span: Span


@dataclass(eq=False, slots=True)
class Program:
    """A whole model, lowered. `functions` has callees before callers and ends with `forward`."""

    model: str
    axes: dict[str, Axis]
    scalars: dict[str, Attr]
    functions: list[Function]
    counts: dict[str, Count]
    externs: dict[str, Extern]
    span: Span
    extra: dict[str, Attr] = field(default_factory=dict)

    @property
    def forward(self) -> Function:
        return self.functions[-1]


def statements_of(function: Function) -> Iterator[Statement]:
    """Every statement of a function, loops entered, each body once."""
    return all_statements(function.statements)


def all_statements(statements: Sequence[Statement]) -> Iterator[Statement]:
    """Statements in order, loops entered, each body once."""
    stack = list(reversed(statements))
    while stack:
        statement = stack.pop()
        yield statement
        if isinstance(statement, Repeat):
            for body in reversed(statement.bodies):
                stack.extend(reversed(body.statements))


def changed_statements(
    statements: Sequence[Statement], change: Callable[[Statement], Statement | None]
) -> list[Statement]:
    """Each statement as `change` gives it, loops entered first; None leaves it out."""
    made: list[Statement] = []
    for statement in statements:
        if isinstance(statement, Repeat):
            bodies = tuple(
                replace(body, statements=changed_statements(body.statements, change))
                for body in statement.bodies
            )
            statement = replace(statement, bodies=bodies)
        changed = change(statement)
        if changed is not None:
            made.append(changed)
    return made


def results_of(statement: Statement) -> tuple[Value, ...]:
    """Every value that a statement makes, losses included."""
    if isinstance(statement, Op):
        return statement.results
    if isinstance(statement, Call):
        return (*statement.results, *statement.losses)
    if isinstance(statement, Repeat):
        return (*statement.results, *(value for _, value in statement.losses))
    return ()


def written_together(statements: Sequence[Statement]) -> Iterator[Sequence[Statement]]:
    """The statements in order, those that were written as one call (`Op.fuse`) as one group."""
    at = 0
    while at < len(statements):
        first, end = statements[at], at + 1
        if isinstance(first, Op) and first.fuse is not None:
            while end < len(statements):
                following = statements[end]
                if not isinstance(following, Op) or following.fuse != first.fuse:
                    break
                end += 1
        yield statements[at:end]
        at = end
