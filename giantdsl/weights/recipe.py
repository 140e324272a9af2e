"""How the tensors of a checkpoint correspond to the parameters of a spec, as plain data."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

MEMBER = "_"
"""The axis along which the parameters of a fused tensor are stacked."""

UNIT = "1"
"""A dimension of one element that the parameter does not have."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """The correspondence of one stored tensor and one or more parameters, readable both ways.

    `axes` are the parameter's axes in memory order, each name once, with their logical `sizes`
    and their `padded` sizes (equal where nothing is padded). `shape` is the plain module's.
    `dims` are the stored tensor's dimensions, each a product of axes, MEMBER or UNIT; the axes
    in `braces` pick the stored tensor instead and are not in `dims`. `members` parameters share
    a stored tensor; it is 1 where MEMBER is not in `dims`.
    """

    axes: tuple[str, ...]
    sizes: tuple[int, ...]
    padded: tuple[int, ...]
    shape: tuple[int, ...]
    dims: tuple[tuple[str, ...], ...]
    braces: tuple[str, ...] = ()
    members: int = 1

    @property
    def flat(self) -> tuple[str, ...]:
        """The stored tensor's axes, ungrouped."""
        return tuple(axis for group in self.dims for axis in group)

    @property
    def kept(self) -> tuple[str, ...]:
        """The parameter's axes that one stored tensor has, in memory order."""
        return tuple(axis for axis in self.axes if axis not in self.braces)

    def size(self, axis: str, *, padded: bool = False) -> int:
        """Number of elements along one of `flat`."""
        if axis == MEMBER:
            return self.members
        if axis == UNIT:
            return 1
        at = self.axes.index(axis)
        return self.padded[at] if padded else self.sizes[at]

    def flat_sizes(self, *, padded: bool = False) -> tuple[int, ...]:
        return tuple(self.size(axis, padded=padded) for axis in self.flat)

    def stored_shape(self, *, padded: bool = False) -> tuple[int, ...]:
        """Shape of the stored tensor, with or without padded rows."""
        return tuple(math.prod(self.size(a, padded=padded) for a in group) for group in self.dims)

    @property
    def brace_sizes(self) -> tuple[int, ...]:
        return tuple(self.size(axis) for axis in self.braces)


@dataclass(frozen=True, slots=True)
class Transfer:
    """One stored tensor and the parameters in it. `at` are the indices along `recipe.braces`."""

    stored: str
    parameters: tuple[str, ...]
    at: tuple[int, ...]
    recipe: Recipe
    is_tied: bool


@dataclass(frozen=True, slots=True)
class Rule:
    """All layers of a loop at once: `*` in the names stands for the loop indices in `indices`.

    `stored` also has `{axis}` for each of the recipe's `braces`. `is_tied`: other layers use
    these parameters too, so a checkpoint may hold them twice.
    """

    stored: str
    parameters: tuple[str, ...]
    indices: tuple[Sequence[int], ...]
    recipe: Recipe
    is_tied: bool = False

    def transfers(self) -> Iterator[Transfer]:
        """One for each stored tensor."""
        for index in itertools.product(*self.indices):
            names = tuple(fill_stars(name, index) for name in self.parameters)
            stored = fill_stars(self.stored, index)
            for at in itertools.product(*(range(n) for n in self.recipe.brace_sizes)):
                full = stored
                for axis, i in zip(self.recipe.braces, at, strict=True):
                    full = full.replace("{" + axis + "}", str(i))
                yield Transfer(full, names, at, self.recipe, self.is_tied)


@dataclass(frozen=True, slots=True)
class WeightMap:
    """A whole `weights` section: every parameter of the model in exactly one place."""

    name: str
    rules: tuple[Rule, ...]

    def transfers(self) -> Iterator[Transfer]:
        for rule in self.rules:
            yield from rule.transfers()


def fill_stars(template: str, index: Sequence[int]) -> str:
    """`decoder.*.q` with (3,) is `decoder.3.q`."""
    first, *rest = template.split("*")
    return first + "".join(f"{i}{part}" for i, part in zip(index, rest, strict=True))
