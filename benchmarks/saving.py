"""What saving costs the demo's training: never, and every ten steps on and off the training path.

    python benchmarks/saving.py                # about ten minutes

Runs take turns; each is timed from its first step to the start of the last save, which all have.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from unittest import mock

import torch

from giantdsl import resources
from giantdsl.attrs import Config
from giantdsl.driver import compile_spec
from giantdsl.running import make_job
from giantdsl.train import run
from giantdsl.train.metrics import MetricsFile, StepRecord

_OUT = Path(__file__).resolve().parent / "results" / "saving.json"
_EVERY = 10
_MODES: dict[str, Config | None] = {
    "never": None,
    "waiting": Config("every", (), (("steps", _EVERY), ("keep", 2), ("async", False))),
    "async": Config("every", (), (("steps", _EVERY), ("keep", 2), ("async", True))),
}


def seconds_a_step(save: Config | None, steps: int, cache: Path) -> float:
    """Between the records of the first step and the last, saves between them included."""
    compiled = compile_spec(resources.model_path("demo"), overrides=[f"train.steps={steps}"])
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "cache").symlink_to(cache)
        job = make_job(compiled, run_dir=Path(folder), quiet=True)
        settings = dataclasses.replace(job.settings, save=save, eval=None)
        times: list[float] = []
        written = MetricsFile.write

        def write(file: MetricsFile, record: StepRecord) -> None:
            times.append(time.perf_counter())
            written(file, record)

        with mock.patch.object(MetricsFile, "write", write):
            run(dataclasses.replace(job, settings=settings))
    return (times[-1] - times[0]) / (len(times) - 1)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="What saving costs the demo's training.")
    parser.add_argument("--steps", type=int, default=22)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=_OUT)
    args = parser.parse_args(arguments)
    found: dict[str, list[float]] = {mode: [] for mode in _MODES}
    with tempfile.TemporaryDirectory() as cache:
        seconds_a_step(None, 2, Path(cache))
        for turn in range(args.rounds):
            for mode in list(_MODES) if turn % 2 == 0 else reversed(_MODES):
                found[mode].append(seconds_a_step(_MODES[mode], args.steps, Path(cache)))
    lines = ["| saving | s a step | of never, median | low to high |", "|---|---|---|---|"]
    for mode, times in found.items():
        ratios = [one / never for one, never in zip(times, found["never"], strict=True)]
        lines.append(
            f"| {mode} | {statistics.median(times):.3f} | {statistics.median(ratios):.3f} |"
            f" {min(ratios):.3f} to {max(ratios):.3f} |"
        )
    record = {"date": date.today().isoformat(), "torch": torch.__version__, "seconds": found}
    args.out.write_text(json.dumps(record | {"steps": args.steps}, indent=1) + "\n")
    head = (
        f"# What saving costs, {record['date']}\n\n`python benchmarks/saving.py`, torch"
        f" {torch.__version__}, {os.cpu_count()} cores: the demo on one process, a checkpoint every"
        f" {_EVERY} steps, {args.rounds} rounds of {args.steps} steps, modes in turns.\n\n"
    )
    args.out.with_suffix(".md").write_text(head + "\n".join(lines) + "\n")
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
