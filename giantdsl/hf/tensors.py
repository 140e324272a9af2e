"""Recipes applied to tensors: from the stored tensor to the parameters in it, and back."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from giantdsl.weights.recipe import MEMBER, UNIT, Recipe


def unpack(recipe: Recipe, stored: Tensor) -> list[Tensor]:
    """The parts of a stored tensor, one for each member.

    Shapes: `recipe.stored_shape()`, or the same with padded rows, which are dropped -> the
    sizes of `recipe.kept` each. The parts are views.
    """
    is_padded = stored.numel() != math.prod(recipe.stored_shape())
    value = stored.reshape(recipe.flat_sizes(padded=is_padded))
    if is_padded:
        for dim, axis in enumerate(recipe.flat):
            value = value.narrow(dim, 0, recipe.size(axis))
    flat = [axis for axis in recipe.flat if axis != UNIT]
    value = value.reshape([recipe.size(axis) for axis in flat])
    if MEMBER not in flat:
        return [value.permute([flat.index(axis) for axis in recipe.kept])]
    members = value.unbind(flat.index(MEMBER))
    flat.remove(MEMBER)
    order = [flat.index(axis) for axis in recipe.kept]
    return [member.permute(order) for member in members]


def pack(recipe: Recipe, parts: list[Tensor]) -> Tensor:
    """The stored tensor made of its parts: `unpack` backwards.

    Shapes: the sizes of `recipe.kept` each -> `recipe.stored_shape()`, contiguous.
    """
    flat = [axis for axis in recipe.flat if axis != UNIT]
    have = list(recipe.kept)
    value = parts[0]
    if MEMBER in flat:
        value = torch.stack(parts)
        have.insert(0, MEMBER)
    value = value.permute([have.index(axis) for axis in flat])
    return value.reshape(recipe.stored_shape()).contiguous()


def part_of(recipe: Recipe, parameter: Tensor, at: tuple[int, ...]) -> Tensor:
    """The view of a parameter that one stored tensor holds: the indices `at` along the braces.

    Shapes: `recipe.shape` -> the sizes of `recipe.kept`.
    """
    view = parameter.view(recipe.sizes)
    # Each brace that is picked moves the later axes one to the left.
    for axis, index in sorted(
        zip(recipe.braces, at, strict=True), key=lambda pair: -recipe.axes.index(pair[0])
    ):
        view = view.select(recipe.axes.index(axis), index)
    return view
