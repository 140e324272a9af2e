"""What the ranks answered, as rows: the slowest rank of each round, medians over rounds."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from giantdsl.bench.cells import Cell, Shape
from giantdsl.bench.limits import link_bytes
from giantdsl.bench.protocol import Times

BASE = "gloo"
"""The backend that all others are compared to."""
_WIRE_FROM_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One backend in one cell. Times are seconds of a call.

    `speed` is gloo's time / this one's, the median over rounds: above 1 this one is faster. `low`
    and `high` are the fastest and the slowest round. `limit_ratio` is limit_s / seconds, so that 1 is
    perfect. `wire_factor` is what crossed the busiest host's interface over what must; not of
    small messages, where barriers count as much. A row with an `error` has no times.
    """

    shape: str
    link: str
    operation: str
    num_bytes: int
    backend: str
    error: str | None = None
    is_correct: bool = True
    seconds: float | None = None
    low: float | None = None
    high: float | None = None
    rounds: int = 0
    calls: int = 0
    speed: float | None = None
    speed_low: float | None = None
    speed_high: float | None = None
    limit_s: float | None = None
    limit_ratio: float | None = None
    wire_factor: float | None = None

    @property
    def is_good(self) -> bool:
        return self.error is None and self.is_correct


def rows_of_cell(
    cell: Cell,
    shape: Shape,
    link: str,
    answers: Sequence[Mapping[str, Times]],
    limit_s: float | None = None,
) -> list[Row]:
    """`answers` are the ranks'; `limit_s` is None where no limit is known."""
    slowest = {
        name: [max(times) for times in zip(*(a[name].seconds for a in answers), strict=True)]
        for name in answers[0]
    }
    must = link_bytes(cell, shape)
    rows = []
    for name, seconds in slowest.items():
        median = statistics.median(seconds)
        speeds = (
            [b / s for b, s in zip(slowest[BASE], seconds, strict=True)] if BASE in slowest else []
        )
        crossed = max(answer[name].wire_bytes for answer in answers)
        is_counted = must > 0 and crossed > 0 and cell.num_bytes >= _WIRE_FROM_BYTES
        rows.append(
            Row(
                shape=str(shape),
                link=link,
                operation=cell.operation,
                num_bytes=cell.num_bytes,
                backend=name,
                is_correct=all(answer[name].is_correct for answer in answers),
                seconds=median,
                low=min(seconds),
                high=max(seconds),
                rounds=len(seconds),
                calls=answers[0][name].calls,
                speed=statistics.median(speeds) if speeds else None,
                speed_low=min(speeds, default=None),
                speed_high=max(speeds, default=None),
                limit_s=limit_s,
                limit_ratio=limit_s / median if limit_s else None,
                wire_factor=crossed / must if is_counted else None,
            )
        )
    return rows
