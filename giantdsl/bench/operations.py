"""The collectives that are measured, on buffers whose right result is known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from giantdsl.bench.cells import Cell


@dataclass(frozen=True, slots=True)
class Prepared:
    """`call` does it once; `check` says whether the first call's result is right."""

    call: Callable[[], object]
    check: Callable[[], bool]


@dataclass(frozen=True, slots=True)
class Place:
    """A rank of a group."""

    rank: int
    size: int
    group: dist.ProcessGroup

    @property
    def sum_of_ranks(self) -> int:
        """`pattern` of this rank is the sum of the patterns of all."""
        return self.size * (self.size + 1) // 2 - 1


def pattern(count: int, rank: int, start: int = 0) -> Tensor:
    """Small whole numbers: their sums are exact."""
    return ((torch.arange(start, start + count) % 7 + 1) * (rank + 1)).float()


def prepare(cell: Cell, place: Place) -> Prepared:
    """Buffers and the call of one cell; `cell.operation` is one of OPERATIONS."""
    return _PREPARE[cell.operation](cell.num_items(place.size), place)


def _all_reduce(count: int, place: Place) -> Prepared:
    x = pattern(count, place.rank)

    def check() -> bool:
        is_right = torch.equal(x, pattern(count, place.sum_of_ranks))
        x.zero_()  # in place: later sums stay finite
        return is_right

    return Prepared(lambda: dist.all_reduce(x, group=place.group), check)


def _reduce_scatter(count: int, place: Place) -> Prepared:
    block = count // place.size
    x, y = pattern(count, place.rank), torch.empty(block)
    return Prepared(
        lambda: dist.reduce_scatter_tensor(y, x, group=place.group),
        lambda: torch.equal(y, pattern(block, place.sum_of_ranks, place.rank * block)),
    )


def _all_gather(count: int, place: Place) -> Prepared:
    block = count // place.size
    x, y = pattern(block, place.rank), torch.empty(count)
    return Prepared(
        lambda: dist.all_gather_into_tensor(y, x, group=place.group),
        lambda: torch.equal(y, torch.cat([pattern(block, r) for r in range(place.size)])),
    )


def _all_to_all(count: int, place: Place) -> Prepared:
    block = count // place.size
    x, y = pattern(count, place.rank), torch.empty(count)
    start = place.rank * block
    return Prepared(
        lambda: dist.all_to_all_single(y, x, group=place.group),
        lambda: torch.equal(y, torch.cat([pattern(block, r, start) for r in range(place.size)])),
    )


def _broadcast(count: int, place: Place) -> Prepared:
    x = pattern(count, place.rank)
    return Prepared(
        lambda: dist.broadcast(x, 0, group=place.group),
        lambda: torch.equal(x, pattern(count, 0)),
    )


_PREPARE: dict[str, Callable[[int, Place], Prepared]] = {
    "all_reduce": _all_reduce,
    "reduce_scatter_tensor": _reduce_scatter,
    "all_gather_into_tensor": _all_gather,
    "all_to_all_single": _all_to_all,
    "broadcast": _broadcast,
}
