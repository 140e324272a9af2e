"""Tensors of a run on many ranks put together again, and how far they are from one process's."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from giantdsl.plan import ValueInfo
from giantdsl.runtime.axes import Axes


@dataclass(frozen=True, slots=True)
class Piece:
    """A rank's part of a value in one microbatch: `places[i]` are its positions along dim i."""

    tensor: Tensor
    places: tuple[Tensor, ...]


def piece_of(value: ValueInfo, tensor: Tensor, rows: Tensor, axes: Axes) -> Piece:
    """Where a tensor of this rank belongs. `rows` are the samples it holds, numbered in the batch."""
    places: list[Tensor] = []
    for i, axis in enumerate(value.axes):
        mesh = value.split[i]
        if value.sizes[i] is None:
            places.append(rows)
        elif any(axes.groups.mesh.axis_size(m) > 1 for m in mesh):
            places.append(getattr(axes, f"{axis}_{mesh[-1]}").index())
        else:
            places.append(torch.arange(tensor.size(i)))
    return Piece(tensor, tuple(places))


def assemble(pieces: Sequence[Piece], whole: Tensor) -> Tensor:
    """The pieces in the shape of `whole`; NaN where no rank had anything."""
    made = torch.full_like(whole, math.nan)
    for piece in pieces:
        if piece.tensor.numel():
            made[torch.meshgrid(*piece.places, indexing="ij") if piece.places else ()] = (
                piece.tensor.to(made.dtype)
            )
    return made


def disagreement(pieces: Sequence[Piece], made: Tensor) -> float:
    """The largest difference between copies of the same elements on several ranks."""
    worst = 0.0
    for piece in pieces:
        if piece.tensor.numel():
            index = torch.meshgrid(*piece.places, indexing="ij") if piece.places else ()
            worst = max(worst, float((made[index] - piece.tensor).abs().max()))
    return worst


def relative_error(found: Tensor, wanted: Tensor, floor: float) -> float:
    """The largest difference over the largest element; infinite where something is not finite.

    `floor` is the least that counts as large: a tensor of rounding errors is near zero, whatever
    its digits.
    """
    if found.shape != wanted.shape:
        return math.inf
    if wanted.numel() == 0:
        return 0.0
    difference = float((found - wanted).abs().max())
    if not math.isfinite(difference):
        return math.inf
    return difference / max(float(wanted.abs().max()), floor)


def floor_of(tensors: Mapping[str, Tensor]) -> float:
    """What counts as large among tensors of one kind: a thousandth of the largest element."""
    largest = (float(t.abs().max()) for t in tensors.values() if t.numel())
    return max(max(largest, default=0.0) * 1e-3, 1e-12)
