"""What the elaborator knows while it reads a block: names, axes, layers, statements so far."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Union

from giantdsl.attrs import Attr, format_attr
from giantdsl.diagnostics import Sink
from giantdsl.ir.nodes import Call, Count, Op, Statement, Value, Weight
from giantdsl.ir.types import Axis, AxisKind, TensorType, base_axis
from giantdsl.sema.dims import Dims
from giantdsl.sema.scalars import FAILED, Failed
from giantdsl.source import Span
from giantdsl.syntax import ast


@dataclass(frozen=True, slots=True)
class AxisArg:
    """An axis named where a value is expected: `over=experts`, `ff=ff`; a number in arithmetic."""

    name: str
    size: int | None


Sem = Union[Value, AxisArg, Attr, Failed, tuple["Sem", ...]]  # noqa: UP007 (recursive)


@dataclass(slots=True)
class Library:
    """A parsed file: its sizes, its blocks, its defaults."""

    file: ast.File
    sizes: frozenset[str]
    blocks: dict[str, BlockRef] = field(default_factory=dict)
    externs: dict[str, ast.Extern] = field(default_factory=dict)
    defaults: dict[str, tuple[ast.Arg, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class BlockRef:
    """A block together with the file it was written in."""

    block: ast.Block
    library: Library


@dataclass(slots=True)
class LayerUse:
    """Where a layer name was taken: in which loop, and at which indices."""

    loop: tuple[int, ...]
    places: dict[tuple[int, ...], Span]


@dataclass(frozen=True, slots=True)
class OwnedLayer:
    """The weights of a layer of this function by role, for `tie`."""

    loop: tuple[int, ...]
    weights: dict[str, Weight]


@dataclass(slots=True)
class Frame:
    """One function under construction."""

    name: str
    library: Library
    generics: dict[str, str] = field(default_factory=dict)
    rest: tuple[str, ...] | None = None
    per: tuple[str, ...] = ()
    env: dict[str, Sem] = field(default_factory=dict)
    statements: list[Statement] = field(default_factory=list)
    losses: list[tuple[str, Value]] = field(default_factory=list)
    loss_counts: dict[str, tuple[Count | None, Span]] = field(default_factory=dict)
    layers: dict[str, LayerUse] = field(default_factory=dict)
    owned: dict[str, OwnedLayer] = field(default_factory=dict)
    callees: dict[str, tuple[tuple[int, ...], Call]] = field(default_factory=dict)
    failed_layers: set[str] = field(default_factory=set)
    path: str = ""
    loop: tuple[int, ...] = ()
    indices: tuple[int, ...] = ()
    depth: int = 0
    num_sites: int = 0
    num_fused: int = 0
    num_loops: int = 0
    gone: dict[str, Span] = field(default_factory=dict)

    @property
    def is_forward(self) -> bool:
        return self.depth == 0

    def next_site(self) -> int:
        self.num_sites += 1
        return self.num_sites

    def emit(self, op: Op) -> Value:
        self.statements.append(op)
        return op.results[0]


class Tables:
    """Facts of the whole file that every frame shares while one spec is elaborated."""

    def __init__(self, dims: Dims, sink: Sink) -> None:
        self.dims = dims
        self.sink = sink
        self.row_means: dict[int, Count | None] = {}
        self.producers: dict[int, Op] = {}
        self.capacities: dict[int, float | None] = {}
        self.poisoned: set[int] = set()
        self.keep_alive: list[Value] = []

    def axis(self, name: str) -> Axis:
        return self.dims.axes[base_axis(name)]

    def kind(self, name: str) -> AxisKind:
        return self.axis(name).kind

    def kind_word(self, name: str) -> str:
        """The kind of an axis as messages call it."""
        kind = self.kind(name)
        return "sequence" if kind is AxisKind.SEQ else kind.value

    def size(self, name: str) -> int | None:
        return self.axis(name).size

    def value(self, name: str, axes: tuple[str, ...], dtype: str, span: Span) -> Value:
        return Value(name, TensorType(axes, dtype), span)

    def poison(self, axes: tuple[str, ...] | None, span: Span) -> Sem:
        """Stand-in for what an expression should have been, so that checking can go on."""
        if axes is None:
            return FAILED
        value = Value("", TensorType(axes), span)
        self.poisoned.add(id(value))
        self.keep_alive.append(value)
        return value

    def is_poisoned(self, value: Sem) -> bool:
        return isinstance(value, Failed) or id(value) in self.poisoned


def as_attr(sem: Sem) -> Attr | Failed:
    """A compile-time value as an attribute: an axis counts as its size. Never a tensor."""
    if isinstance(sem, tuple):
        items = [as_attr(item) for item in sem]
        good = tuple(item for item in items if not isinstance(item, Failed))
        return good if len(good) == len(items) else FAILED
    if isinstance(sem, AxisArg):
        return sem.size
    return FAILED if isinstance(sem, Value) else sem


def describe(sem: Sem) -> str:
    """A value as messages show it."""
    if isinstance(sem, Value):
        return str(sem.type)
    if isinstance(sem, AxisArg):
        return f"the axis `{sem.name}`"
    if isinstance(sem, Failed):
        return "something wrong"
    if isinstance(sem, tuple):
        if any(isinstance(item, Value) for item in sem):
            return f"{len(sem)} values"
        shown = (i.name if isinstance(i, AxisArg) else describe(i) for i in sem)
        return f"[{', '.join(shown)}]"
    return format_attr(sem)


def plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def shape(axes: tuple[str, ...]) -> str:
    return f"[{', '.join(axes)}]"
