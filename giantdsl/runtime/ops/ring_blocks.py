"""Which pairs of runs of queries and keys attention has to compute. Pure integers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import Enum

from giantdsl.mesh.slices import Bounds


class Sight(Enum):
    """What the queries of a block see of its keys: all, those up to themselves, or by a mask."""

    ALL = "all"
    DIAGONAL = "diagonal"
    MASKED = "masked"


@dataclass(frozen=True, slots=True)
class Block:
    """Queries and keys by their place in the tensors at hand: (start, stop)."""

    queries: tuple[int, int]
    keys: tuple[int, int]
    sight: Sight


def blocks(queries: Bounds, keys: Bounds, *, causal: bool, window: int | None) -> list[Block]:
    """The blocks with anything to see, neighbours that are seen whole as one.

    Args:
      queries, keys: the runs of positions that the tensors hold, end to end.
      window: a query sees keys less than this far back.
    """
    found: list[Block] = []
    for query, here in _placed(queries):
        row = [
            Block(here, there, sight)
            for key, there in _placed(keys)
            if (sight := _sight(query, key, causal, window)) is not None
        ]
        found += _joined(row)
    return _stacked(found)


def _placed(runs: Bounds) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Each run that is not empty, and where it lies among the runs laid end to end."""
    at = 0
    for start, stop in runs:
        if start < stop:
            yield (start, stop), (at, at + stop - start)
        at += stop - start


def _sight(
    query: tuple[int, int], key: tuple[int, int], causal: bool, window: int | None
) -> Sight | None:
    """What a run of queries sees of a run of keys; None: nothing."""
    first, last = query[0], query[1] - 1
    nearest, farthest = key[1] - 1, key[0]
    if causal and farthest > last:
        return None
    if window is not None and nearest <= first - window:
        return None
    is_past = not causal or nearest <= first
    is_near = window is None or farthest > last - window
    if is_past and is_near:
        return Sight.ALL
    return Sight.DIAGONAL if query == key and window is None else Sight.MASKED


def _joined(row: Iterable[Block]) -> list[Block]:
    """Blocks of the same queries: neighbouring keys that are seen whole become one block."""
    found: list[Block] = []
    for block in row:
        last = found[-1] if found else None
        whole = last is not None and last.sight is block.sight is Sight.ALL
        if last is not None and whole and last.keys[1] == block.keys[0]:
            found[-1] = replace(last, keys=(last.keys[0], block.keys[1]))
        else:
            found.append(block)
    return found


def _stacked(found: Iterable[Block]) -> list[Block]:
    """Neighbouring queries that see the same keys whole become one block."""
    made: list[Block] = []
    for block in found:
        last = made[-1] if made else None
        whole = last is not None and last.sight is block.sight is Sight.ALL
        if last is not None and whole and last.keys == block.keys:
            if last.queries[1] == block.queries[0]:
                made[-1] = replace(last, queries=(last.queries[0], block.queries[1]))
                continue
        made.append(block)
    return made
