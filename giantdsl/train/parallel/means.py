"""Adafactor's means over parameters of which other ranks hold the rest."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from giantdsl.plan import StoredParameter
from giantdsl.runtime.groups import Group, Groups
from giantdsl.train.adafactor import Means
from giantdsl.train.parallel.ownership import Ownership, dims_of
from giantdsl.train.parallel.sums import sum_over


class SlicedMeans(Means):
    """Means over the whole of a sliced parameter: sums here, over the ranks, and one division.

    Every rank that holds a part calls them in the same order, those with an empty part too.
    `shape` is that of the whole; `last`, `rows` and `whole` are the groups that divide its last
    dimension, the one before, and any.
    """

    def __init__(self, shape: tuple[int, ...], last: Group, rows: Group, whole: Group) -> None:
        self._shape, self._last, self._rows, self._whole = shape, last, rows, whole

    def over_last(self, x: Tensor) -> Tensor:
        return _mean(x, -1, self._shape[-1], self._last)

    def over_rows(self, x: Tensor) -> Tensor:
        return _mean(x, -2, self._shape[-2], self._rows)

    def of_row(self, row: Tensor) -> Tensor:
        return _mean(row, -1, self._shape[-2], self._rows).unsqueeze(-1)

    def over_all(self, x: Tensor) -> Tensor:
        return _mean(x.reshape(-1), -1, math.prod(self._shape), self._whole)


def sliced_means(stored: StoredParameter, ownership: Ownership, groups: Groups) -> Means | None:
    """The means of a parameter; None where each holder has all of it."""
    last, rows, whole = mean_axes(stored, ownership)
    if not whole:
        return None
    return SlicedMeans(
        stored.info.shape, groups.over(*last), groups.over(*rows), groups.over(*whole)
    )


def mean_axes(
    stored: StoredParameter, ownership: Ownership
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """The mesh axes that divide the last dimension, the one before, and any dimension."""
    whole = ownership.split_axes(stored)
    by_dim = [
        {
            m
            for position, name in stored.splits
            if position in axes
            for m in ownership.splits[name].mesh
        }
        for axes in dims_of(stored)
    ]
    last, rows = (
        tuple(axis for axis in whole if len(by_dim) >= back and axis in by_dim[-back])
        for back in (1, 2)
    )
    return last, rows, whole


def _mean(x: Tensor, dim: int, size: int, group: Group) -> Tensor:
    wide = torch.float32 if x.dtype.itemsize < torch.float32.itemsize else x.dtype
    return (sum_over(x.sum(dim=dim, dtype=wide), group) / size).to(x.dtype)
