"""Rows as a table: aligned columns for a terminal, Markdown for a file."""

from __future__ import annotations

from collections.abc import Sequence

from giantdsl.bench.cells import size_text, time_text
from giantdsl.bench.rows import Row

_HEADS = ("operation", "size", "backend", "time", "low to high", "vs gloo", "of limit", "wire")


def cells_of(row: Row) -> tuple[str, ...]:
    """The texts of one line, under `heads()`."""
    start = (row.operation, size_text(row.num_bytes), row.backend)
    if row.error is not None:
        return (*start, "FAILED", row.error, "", "", "")
    assert row.seconds is not None and row.low is not None and row.high is not None
    time = time_text(row.seconds) + ("" if row.is_correct else " WRONG")
    return (
        *start,
        time,
        f"{time_text(row.low)} to {time_text(row.high)}",
        "" if row.speed is None else f"{row.speed:.2f}x",
        "" if row.limit_ratio is None else f"{row.limit_ratio:.2f}",
        "" if row.wire_factor is None else f"{row.wire_factor:.2f}",
    )


def plain_table(rows: Sequence[Row]) -> str:
    """Columns that no row fills are left out."""
    lines = [_HEADS, *(cells_of(row) for row in rows)]
    used = [i for i in range(len(_HEADS)) if any(line[i] for line in lines[1:])]
    # A failure's message is long and last in its line: it makes no column wide.
    widths = {i: max(len(line[i]) for line in lines if line[3] != "FAILED" or i < 4) for i in used}
    shown = ("  ".join(line[i].ljust(widths[i]) for i in used).rstrip() for line in lines)
    return "\n".join(shown)


def markdown_table(rows: Sequence[Row]) -> str:
    lines = [_HEADS, tuple("---" for _ in _HEADS), *(cells_of(row) for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
