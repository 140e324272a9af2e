"""`giantdsl train models/demo.giant` on 8 ranks, over giant and over gloo in turns.

    python benchmarks/train_backends.py            # about fifteen minutes

Seconds a step are the run's own (metrics.jsonl), the first steps left out: the median over steps
of the median over rounds. Losses of both backends must be those of each other within 1e-4.
The cases over hosts need root.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path

import torch
from cluster import Cluster, why_not

ROOT = Path(__file__).resolve().parents[1]
_OUT = ROOT / "benchmarks" / "results" / "train_backends.json"
_BACKENDS = ("gloo", "giant")
_WARM = 2
_CLOSE = 1e-4
_PORT = 29511


@dataclass(frozen=True, slots=True)
class Case:
    """A layout, and where it runs: `link` None is one host."""

    layout: str
    hosts: int = 1
    link: str | None = None

    @property
    def label(self) -> str:
        where = "one host" if self.link is None else f"{self.hosts} hosts x 2, {self.link}"
        return f"{self.layout}, {where}"


CASES = (
    Case("dp=8"),
    Case("tp=2 pp=2 dp=2"),
    Case("dp=8", 4, "1gbit"),
    Case("tp=2 pp=2 dp=2", 4, "1gbit"),
    Case("tp=2 dp=4", 4, "1gbit"),
)


@dataclass(frozen=True, slots=True)
class Row:
    """`gloo` and `giant` are seconds a step, `low` to `high` the ratio's spread over rounds."""

    case: str
    gloo: float
    giant: float
    ratio: float
    low: float
    high: float


def measure(case: Case, steps: int, rounds: int, cache: Path) -> Row:
    found: dict[str, list[float]] = {backend: [] for backend in _BACKENDS}
    for turn in range(rounds):
        losses = []
        for backend in _BACKENDS if turn % 2 == 0 else reversed(_BACKENDS):
            rows = _run(case, backend, steps, cache)
            seconds = [row["seconds"] for row in rows]
            each = [b - a for a, b in zip(seconds[_WARM:], seconds[_WARM + 1 :], strict=False)]
            found[backend].append(statistics.median(each))
            losses.append([row["loss"] for row in rows])
        worst = max(abs(a - b) for a, b in zip(*losses, strict=True))
        if worst > _CLOSE:
            raise SystemExit(f"{case.label}: losses differ by {worst}")
    ratios = [gloo / giant for gloo, giant in zip(found["gloo"], found["giant"], strict=True)]
    times = {backend: statistics.median(each) for backend, each in found.items()}
    return Row(
        case.label, times["gloo"], times["giant"], statistics.median(ratios), min(ratios), max(ratios)
    )  # fmt: skip


def _run(case: Case, backend: str, steps: int, cache: Path) -> list[dict[str, float]]:
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        run.mkdir()
        (run / "cache").symlink_to(cache)
        command = [
            sys.executable, "-m", "giantdsl", "train", str(ROOT / "models" / "demo.giant"),
            "--quiet", "--run-dir", str(run), "--backend", backend,
            *(f"parallel.{each}" for each in case.layout.split()),
            f"train.steps={steps}", "train.save=none", "train.eval=none",
        ]  # fmt: skip
        if case.link is None:
            subprocess.run(command, check=True, env=_environ())
        else:
            _on_hosts(case, command)
        return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def _on_hosts(case: Case, command: Sequence[str]) -> None:
    flags = f"--nnodes {case.hosts} --node-rank $HOST_RANK --rdzv $MASTER_ADDR:{_PORT}"
    with Cluster(case.hosts, 2, case.link) as cluster:
        script = ["sh", "-c", f'exec "$@" {flags}', "sh", *command]
        result = cluster.run(script, "host", {"OMP_NUM_THREADS": "1"}, timeout_s=600)
        if not result.is_ok:
            raise SystemExit(f"{case.label}: exit codes {result.codes}")


def _environ() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1"}


def _table(rows: Sequence[Row]) -> str:
    head = "| demo on 8 ranks | gloo, s a step | giant, s a step | gloo / giant | low to high |"
    lines = [
        f"| {row.case} | {row.gloo:.3f} | {row.giant:.3f} | {row.ratio:.2f} |"
        f" {row.low:.2f} to {row.high:.2f} |"
        for row in rows
    ]
    return "\n".join([head, "|---|---|---|---|---|", *lines])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="The demo's training over giant and gloo.")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cases", default="", help="numbers, with commas (default: all)")
    parser.add_argument("--out", type=Path, default=_OUT)
    args = parser.parse_args(arguments)
    chosen = [CASES[int(each)] for each in args.cases.split(",") if each] or list(CASES)
    reason = why_not()
    if reason is not None:
        print(f"without hosts: {reason}", file=sys.stderr)
        chosen = [case for case in chosen if case.link is None]
    rows = []
    with tempfile.TemporaryDirectory() as cache:
        _run(Case("dp=1"), "gloo", 1, Path(cache))
        for case in chosen:
            rows.append(measure(case, args.steps, args.rounds, Path(cache)))
            print(_table(rows[-1:]).splitlines()[-1], flush=True)
    record = {
        "date": date.today().isoformat(),
        "torch": torch.__version__,
        "cores": os.cpu_count(),
        "steps": args.steps,
        "rounds": args.rounds,
        "rows": [asdict(row) for row in rows],
    }
    args.out.write_text(json.dumps(record, indent=1) + "\n")
    head = (
        f"# The demo's training over giant and gloo, {record['date']}\n\n"
        f"`python benchmarks/train_backends.py`, torch {record['torch']}, {record['cores']} cores, 8 ranks"
        f" of one thread, {args.rounds} rounds of {args.steps} steps, backends in turns. Losses of both"
        f" agree within {_CLOSE}.\n\n"
    )
    args.out.with_suffix(".md").write_text(head + _table(rows) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
