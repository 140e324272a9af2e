"""What a run found, on disk: JSON, and a Markdown table made from it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from giantdsl.bench.rows import Row
from giantdsl.bench.table import markdown_table

Where = tuple[str, str]


def write_report(out: Path, header: dict[str, Any], rows: Sequence[Row], *, is_added: bool) -> None:
    """`out` and the .md beside it. `is_added`: rows of other cells in `out` are kept."""
    links = header["links_MBps"]
    if is_added and out.exists():
        kept = json.loads(out.read_text())
        new = {_key(row) for row in rows}
        rows = [row for row in (Row(**r) for r in kept["rows"]) if _key(row) not in new] + [*rows]
        links = {**kept["links_MBps"], **links}
    record = {**header, "links_MBps": links, "rows": [asdict(row) for row in rows]}
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(record, indent=1) + "\n")
    out.with_suffix(".md").write_text(_markdown(record, rows))


def _key(row: Row) -> tuple[str, str, str, int, str]:
    return row.shape, row.link, row.operation, row.num_bytes, row.backend


def _markdown(record: dict[str, Any], rows: Sequence[Row]) -> str:
    wheres = list(dict.fromkeys((row.shape, row.link) for row in rows))
    parts = [_head(record)]
    for where in wheres:
        found = [row for row in rows if (row.shape, row.link) == where]
        parts.append(f"## {_title(where, record['links_MBps'])}\n\n{markdown_table(found)}")
    return "\n\n".join(parts) + "\n"


def _title(where: Where, links: dict[str, Any]) -> str:
    shape, link = where
    rates = links.get(f"{shape}@{link}")
    if rates is None:
        return f"{shape}, one host"
    one, both = rates["one_way"], rates["both_ways"]
    return f"{shape}, link {link}: {one:.1f} MB/s one way, {both:.1f} each way when both are busy"


def _head(record: dict[str, Any]) -> str:
    load = " to ".join(f"{each:.1f}" for each in record["load"])
    return (
        f"# Collectives side by side, {record['date']}\n\n"
        f"`{record['command']}`, torch {record['torch']}, {record['cores']} cores, one thread a rank,"
        f" {record['scheduler']}, load average {load}. Shapes are hosts x ranks a host, on the emulated"
        " cluster of `benchmarks/cluster`. Backends take turns round by round on the same ranks; time is"
        " the median over rounds of the slowest rank, calls back to back (so small broadcasts overlap),"
        " float32. `vs gloo` is gloo's time / this one's, the median over rounds: above 1 is faster. `of"
        " limit` is the least possible time / this one (`giantdsl/bench/limits.py`, with the rates that"
        " were measured on the link and in memory), `wire` the bytes that crossed the busiest host's"
        " interface in one direction / the least possible, headers included. Every result was checked at"
        " its first call. More ranks than cores: unshaped links and single hosts compare processor cost,"
        " shaped links schedules."
    )
