"""Slices, data parallel ranks and pipelines against their peers, side by side in one run.

    python benchmarks/parallel.py [--rounds 7] [--small] [--only PART] [--out DIR/parallel.json]

1. slices: a GPT layer sliced over two ranks, communication faked: the emitted layer, Megatron's
   functions by hand, DTensor, and the local work alone.
2. data: two ranks with the same module: our sums and ZeRO, DDP, FSDP2, ZeroRedundancyOptimizer.
3. pipeline: our executor and torch.distributed.pipelining over the same stage modules.
4. sequence: halves of a sequence on two ranks, keys in a ring and gathered.
5. bubble: the idle share of real steps and the simulated one.

Ratio = ours / peer, the median over rounds of both taken in turn; below 1 ours is faster.
`--out` writes JSON and a table beside it.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import platform
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from parallel_bubble import Bubble, bubble, has_quota
from parallel_data import data
from parallel_megatron import has_megatron
from parallel_pipeline import Model, Overhead, pipeline
from parallel_sequence import sequence
from parallel_slices import slices
from parallel_timing import Row

from giantdsl.testing.ranks import RankPool

PARTS = ("slices", "data", "pipeline", "sequence", "bubble")


@dataclasses.dataclass(slots=True)
class Results:
    rows: list[Row] = dataclasses.field(default_factory=list)
    overheads: list[Overhead] = dataclasses.field(default_factory=list)
    bubbles: list[Bubble] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)


def measure(parts: Sequence[str], rounds: int, small: bool) -> Results:
    results = Results()
    if "slices" in parts:
        results.rows += slices(rounds, (64,) if small else (64, 256, 1024))
        if not has_megatron():
            results.notes.append("no rows of Megatron-core's layers: it is not installed")
    with RankPool(2 if small else 4) as pool:
        if "data" in parts:
            results.rows += data(pool, rounds, 64, 2 if small else 8, calls=1 if small else 4)
        if "pipeline" in parts:
            _pipelines(pool, results, rounds, small)
        if "sequence" in parts:
            results.rows += sequence(
                pool, rounds, 64 if small else 256, (64,) if small else (512, 2048)
            )
        if "bubble" in parts:
            _bubbles(pool, results, rounds, small)
    return results


def _pipelines(pool: RankPool, results: Results, rounds: int, small: bool) -> None:
    cases = [(2, Model(0), 32), (4, Model(0), 32), (2, Model(256), 8), (4, Model(256), 8)]
    for world, model, microbatches in [(2, Model(0), 4)] if small else cases:
        rows, overheads = pipeline(pool, rounds, world, model, microbatches)
        results.rows += rows
        results.overheads += overheads


def _bubbles(pool: RankPool, results: Results, rounds: int, small: bool) -> None:
    steps = 2 if small else max(rounds, 5)
    sizes = (64,) if small else (256, 512)
    if len(os.sched_getaffinity(0)) >= 2:
        for hidden in sizes:
            for schedule in ("1f1b",) if small else ("1f1b", "zero_bubble"):
                results.bubbles.append(bubble(pool, steps, 2, Model(hidden), 4, schedule, None))
    else:
        results.notes.append("no bubble of ranks with a core each: there is one core")
    if small:
        return
    if has_quota():
        for hidden in sizes:
            results.bubbles.append(bubble(pool, steps, 4, Model(hidden), 8, "1f1b", 0.2))
    else:
        results.notes.append("no bubble of ranks held to 0.2 core: no cgroup v1 to write here")


def table(results: Results) -> str:
    """Markdown."""
    lines = [
        "| part | what | ours | peer | ours ms | peer ms | ratio | low to high | of CPU time | target |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for r in results.rows:
        target = "" if r.target is None else f"{r.target:g}"
        lines.append(
            f"| {r.part} | {r.what} | {r.ours} | {r.peer} | {r.ours_ms:.3g} | {r.peer_ms:.3g} "
            f"| {r.ratio:.2f} | {r.low:.2f} to {r.high:.2f} | {r.cpu_ratio:.2f} | {target} |"
        )
    if results.overheads:
        lines += [
            "",
            "Overhead of ours: processor time beside the passes, summed over ranks and divided by",
            "stages times microbatches, so that two stages a rank (interleaved) count as two.",
            "",
            "| pipeline | schedule | us | low to high | of 1f1b | instructions | messages |",
            "|---|---|---|---|---|---|---|",
        ]
    for o in results.overheads:
        lines.append(
            f"| {o.what} | {o.schedule} | {o.microseconds:.0f} | {o.low:.0f} to {o.high:.0f} "
            f"| {o.of_1f1b:.2f} | {o.instructions:.3g} | {o.messages:.3g} |"
        )
    if results.bubbles:
        lines += ["", "| bubble | schedule | measured | low to high | simulated | points apart |"]
        lines.append("|---|---|---|---|---|---|")
    for b in results.bubbles:
        lines.append(
            f"| {b.what} | {b.schedule} | {b.measured:.1%} | {b.low:.1%} to {b.high:.1%} "
            f"| {b.simulated:.1%} | {b.points:+.1f} |"
        )
    return "\n".join([*lines, *(f"\n{note}" for note in results.notes)])


def write(out: Path, results: Results, rounds: int, loads: tuple[float, float]) -> None:
    out.parent.mkdir(parents=True, exist_ok=True)
    setting = {
        "date": time.strftime("%Y-%m-%d"),
        "machine": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "threads_a_rank": 1,
        "torch": torch.__version__,
        "rounds": rounds,
        "load_before_and_after": loads,
    }
    record = setting | dataclasses.asdict(results)
    out.write_text(json.dumps(record, indent=2) + "\n")
    head = [
        f"# Slices, data parallel ranks and pipelines, {setting['date']}",
        "",
        f"`python benchmarks/parallel.py --rounds {rounds}`, torch {torch.__version__}, gloo, "
        f"{os.cpu_count()} cores, one thread a rank. Ratio = ours / peer, median of {rounds} "
        "alternating rounds; low and high are single rounds. Load average of the machine "
        f"{loads[0]:.1f} before, {loads[1]:.1f} after: above the number of cores the clock "
        "says little, the ratio of processor time more.",
        "",
    ]
    out.with_suffix(".md").write_text("\n".join([*head, table(results)]) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--small", action="store_true", help="about a minute, for a quick look")
    parser.add_argument("--only", choices=PARTS, action="append")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--note", action="append", default=[], help="kept with the results")
    args = parser.parse_args()
    torch.set_num_threads(1)
    rounds = args.rounds or (2 if args.small else 7)
    before = os.getloadavg()[0]
    results = measure(args.only or PARTS, rounds, args.small)
    results.notes += args.note
    print(table(results))
    if args.out is not None:
        write(args.out, results, rounds, (before, os.getloadavg()[0]))


if __name__ == "__main__":
    main()
