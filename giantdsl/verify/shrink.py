"""A small version of any spec, by overrides of its dims. No torch.

Sizes shrink by what they are in the program, never by what they are called: loop counts, heads,
sequences, features. What makes the spec illegal is taken back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from giantdsl.driver import Compiled
from giantdsl.errors import SpecError
from giantdsl.ir.nodes import Function, Op, Program, Repeat, statements_of
from giantdsl.ir.types import BUILTIN_DTYPES, AxisKind, base_axis
from giantdsl.syntax import ast

Compile = Callable[[Sequence[str]], Compiled]

_FEATURES = (64, 48, 96, 80, 112, 144)
"""Sizes of wide axes, in the order in which they are tried: one of them suits the heads."""
_CLASSES, _SEQUENCE, _HEADS, _WIDTH, _SMALL, _FEW_HEADS = 96, 16, 8, 8, 8, 16


def shrink(compile_with: Compile, layers: int) -> tuple[str, ...]:
    """Overrides that make the model small: each loop of `forward` has about `layers` iterations.

    `compile_with` compiles the spec with more overrides; it must be legal without any.
    """
    compiled = compile_with(())
    for features in _FEATURES:
        overrides = _overrides(compiled, layers, features)
        if _is_legal(compile_with, overrides):
            return overrides
    return _legal_part(compile_with, _overrides(compiled, layers, _FEATURES[0]))


def _legal_part(compile_with: Compile, overrides: Sequence[str]) -> tuple[str, ...]:
    """As many as are legal together; one that needs another is tried again after it."""
    kept: list[str] = []
    waiting = list(overrides)
    while waiting:
        rejected: list[str] = []
        for override in waiting:
            found = kept if _is_legal(compile_with, [*kept, override]) else rejected
            found.append(override)
        if len(rejected) == len(waiting):
            break
        waiting = rejected
    return tuple(kept)


def _overrides(compiled: Compiled, layers: int, features: int) -> tuple[str, ...]:
    sizes = _small_sizes(compiled, layers, features)
    return tuple(
        f"dims.{name}={text}" for name, text in sizes.items() if text != _current(compiled, name)
    )


def _is_legal(compile_with: Compile, overrides: Sequence[str]) -> bool:
    try:
        compile_with(overrides)
    except SpecError:
        return False
    return True


def _current(compiled: Compiled, name: str) -> str:
    axis = compiled.program.axes.get(name)
    if axis is None or axis.size is None:
        return str(compiled.program.scalars.get(name))
    return str(axis.size) if axis.logical is None else f"pad({axis.logical}, 64)"


def _small_sizes(compiled: Compiled, layers: int, features: int) -> dict[str, str]:
    """Of every size that is a plain number or a padded one: loop counts first."""
    program = compiled.program
    roles = _Roles(program)
    found: dict[str, str] = {}
    literal = _literal_dims(compiled)
    for name in sorted(literal, key=lambda n: (n not in roles.counts, -roles.size(n))):
        if name in roles.counts and name not in roles.axes:
            found[name] = str(layers)
        elif literal[name]:
            found[name] = "pad(250, 64)"
        else:
            found[name] = str(roles.small(name, features))
    return found


def _literal_dims(compiled: Compiled) -> dict[str, bool]:
    """The dims whose size is written as a whole number, or (True) as `pad(number, number)`."""
    found: dict[str, bool] = {}
    for item in compiled.tree.items:
        for decl in item.decls if isinstance(item, ast.Dims) else ():
            size = decl.size
            if isinstance(size, ast.Number) and isinstance(size.value, int) and size.value > 0:
                found[decl.name.text] = False
            elif isinstance(size, ast.Call) and size.function.text == "pad":
                found[decl.name.text] = True
    return found


class _Roles:
    """What sizes are used for."""

    def __init__(self, program: Program) -> None:
        self._program = program
        loops = [s for f in program.functions for s in statements_of(f) if isinstance(s, Repeat)]
        self._loop_sizes = {loop.count for loop in loops}
        self.axes = {a for f in program.functions for a in _axes_of(f)}
        self.counts = {
            name
            for name in (*program.axes, *program.scalars)
            if name not in self.axes and self.size(name) in self._loop_sizes
        }
        self._heads: dict[str, str] = {}
        self._kv: dict[str, str] = {}
        self._widths: set[str] = set()
        self._classes = {
            base_axis(p.type.dtype)
            for p in program.forward.params
            if p.type.dtype not in BUILTIN_DTYPES
        }
        for function in program.functions:
            for op in statements_of(function):
                if isinstance(op, Op) and op.kind == "sdpa":
                    heads, kv = str(op.attrs["heads"]), str(op.attrs["kv"])
                    self._heads[heads] = kv
                    self._kv[kv] = heads
                    self._widths |= {str(op.attrs["c"]), str(op.attrs["e"])}

    def size(self, name: str) -> int:
        axis = self._program.axes.get(name)
        if axis is not None:
            return axis.size or 0
        value = self._program.scalars.get(name)
        return value if isinstance(value, int) else 0

    def small(self, name: str, features: int) -> int:
        """A smaller size of the same kind, and never a larger one."""
        size = self.size(name)
        axis = self._program.axes.get(name)
        if axis is None or (name not in self.axes and not axis.factors):
            return size if axis is None else _halved(size)
        if axis.kind is AxisKind.SEQ:
            return min(size, _SEQUENCE)
        if name in self._heads:
            return _HEADS if size % _HEADS == 0 and size > _HEADS else _few(size)
        if name in self._kv:
            heads = self.small(self._kv[name], features)
            return min(size, max(2, heads // 2)) if size % 2 == 0 else size
        if name in self._widths:
            return min(size, _WIDTH)
        if name in self._classes:
            return min(size, _CLASSES)
        return min(size, features) if size >= features else _halved(size)


def _few(size: int) -> int:
    return size if size <= _FEW_HEADS else _halved(size)


def _halved(size: int) -> int:
    while size > _SMALL and size % 2 == 0:
        size //= 2
    return size


def _axes_of(function: Function) -> set[str]:
    found = {base_axis(a) for p in function.params for a in p.type.axes}
    for statement in statements_of(function):
        if isinstance(statement, Op):
            found |= {base_axis(a) for v in statement.results for a in v.type.axes}
            found |= {base_axis(a) for u in statement.weights for a in u.weight.axes}
            for key in ("source", "target", "parts"):
                value = statement.attrs.get(key)
                if isinstance(value, tuple):
                    found |= {base_axis(str(a)) for a in value}
    return found
