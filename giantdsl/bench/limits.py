"""What no schedule can beat, on full-duplex links.

With H hosts of L ranks, N bytes and B bytes/s a link, in each direction:

    all_reduce              2 (H-1)/H N / B      a host must receive and send so much at least,
    reduce_scatter_tensor     (H-1)/H N / B      when its ranks first reduce among themselves
    all_gather_into_tensor    (H-1)/H N / B      each block enters a host once
    all_to_all_single       L (H-1)/H N / B      nothing can be merged
    broadcast                         N / B      enters each host once

(all_reduce: of schedules that do not rely on a reducing switch.) Inside a host the bytes that ranks
must get from one another, (L-1) N and for all_reduce twice that, pass through the copy bandwidth
that its cores reach together at that size. The limit is the larger of the two times.
"""

from __future__ import annotations

from dataclasses import dataclass

from giantdsl.bench.cells import Cell, Shape


@dataclass(frozen=True, slots=True)
class LinkRates:
    """Measured goodput in bytes/s: one way alone, and of one way while the other is as busy."""

    one_way: float
    both_ways: float

    def of(self, operation: str) -> float:
        """A broadcast fills one direction of a link, everything else both."""
        return self.one_way if operation == "broadcast" else self.both_ways


def link_bytes(cell: Cell, shape: Shape) -> float:
    """What must enter and leave the busiest host, in each direction."""
    share = (shape.hosts - 1) / shape.hosts * cell.num_bytes
    if cell.operation == "broadcast":
        return cell.num_bytes if shape.hosts > 1 else 0
    if cell.operation == "all_reduce":
        return 2 * share
    return share * (shape.local if cell.operation == "all_to_all_single" else 1)


def copied_bytes(cell: Cell, shape: Shape) -> float:
    """What the ranks of one host must get from one another, in sum."""
    return (shape.local - 1) * cell.num_bytes * (2 if cell.operation == "all_reduce" else 1)


def limit_s(cell: Cell, shape: Shape, link: LinkRates | None, copy_rate: float) -> float:
    """Seconds. `link` is None on one host; `copy_rate` in bytes/s."""
    between = link_bytes(cell, shape) / link.of(cell.operation) if link is not None else 0.0
    return max(between, copied_bytes(cell, shape) / copy_rate)
