"""Kill a training run at random moments until it is through; it must equal the one left alone.

    python -m tests.torture.kill [--times 10] [--steps 60] [--seed 0]

Each start is the command line a user types. Metrics must agree in every field that is no clock,
weights and optimizer state to the last bit. Exit code 1 and the first difference if they do not.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from safetensors.numpy import load_file

ROOT = Path(__file__).resolve().parents[2]
CLOCKS = {"seconds", "tokens_per_s"}
OVERRIDES = (
    "dims.d=64", "dims.heads=4", "dims.kv=2", "dims.ff=96", "dims.layers=2", "dims.s=64",
    "dims.vocab=512", "dims.drop=0.1", "train.tokenizer=bpe(vocab=512)", "train.batch=8",
    "train.microbatch=3", "train.save=every(4, keep=3)", "train.eval=every(10, batches=2)",
    'train.data=text("text/*.txt")',
)  # fmt: skip


def command(run_dir: Path, spec: Path, steps: int) -> list[str]:
    start = [
        sys.executable,
        "-m",
        "giantdsl",
        "train",
        str(spec),
        "--run-dir",
        str(run_dir),
        "--quiet",
    ]
    return [*start, *OVERRIDES, f"train.steps={steps}"]


def written(run_dir: Path) -> int:
    """How many steps the run has recorded."""
    metrics = run_dir / "metrics.jsonl"
    return metrics.read_bytes().count(b"\n") if metrics.is_file() else 0


def train(run_dir: Path, spec: Path, steps: int, kill_at: tuple[int, float] | None = None) -> int:
    """Run it to its end, or to a SIGKILL some seconds after so many steps; the exit code."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        command(run_dir, spec, steps), stderr=subprocess.PIPE, text=True, env=environment
    )
    if kill_at is not None:
        step, delay_s = kill_at
        while process.poll() is None and written(run_dir) < step:
            time.sleep(0.002)
        time.sleep(delay_s)
        process.send_signal(signal.SIGKILL)
    _, errors = process.communicate()
    if process.returncode not in (0, -signal.SIGKILL):
        raise SystemExit(f"the run failed by itself: {errors}")
    return process.returncode


def difference(one: Path, other: Path) -> str:
    """The first thing in which two runs differ; "" if they are equal."""
    rows = [
        [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        for run in (one, other)
    ]
    if len(rows[0]) != len(rows[1]):
        return f"{len(rows[0])} lines of metrics against {len(rows[1])}"
    for a, b in zip(*rows, strict=True):
        a, b = ({k: v for k, v in row.items() if k not in CLOCKS} for row in (a, b))
        if a != b:
            return f"metrics: {a} against {b}"
    newest = [sorted((run / "checkpoints").glob("step-*"))[-1] for run in (one, other)]
    for name in ("model.safetensors", "optimizer.safetensors"):
        tensors = [load_file(folder / name) for folder in newest]
        if tensors[0].keys() != tensors[1].keys():
            return f"{name}: other tensors"
        for key, value in tensors[0].items():
            if value.tobytes() != tensors[1][key].tobytes():
                return f"{name}: `{key}` differs"
    return ""


def torture(times: int, steps: int, seed: int, folder: Path, say: bool = True) -> str:
    """Kill `times` times, then let it finish; what differs from the run left alone."""
    (folder / "text").mkdir()
    for i in range(60):
        text = " ".join(str((i * 7919 + j * j) % 997) for j in range(400))
        (folder / "text" / f"{i:02}.txt").write_text(text)
    spec = folder / "demo.giant"
    spec.write_text((ROOT / "models" / "demo.giant").read_text())
    train(folder / "alone", spec, steps)
    draw = random.Random(seed)
    for i in range(times):
        # From where it stands; now and then before the first step, while it starts.
        reach = (
            0
            if draw.random() < 0.15
            else written(folder / "killed") + draw.randint(1, 2 * steps // times)
        )
        code = train(folder / "killed", spec, steps, (min(reach, steps - 1), draw.uniform(0, 0.06)))
        if say:
            how = "killed" if code else "had finished"
            print(f"{i + 1}: {how} with {written(folder / 'killed')} steps written", flush=True)
    train(folder / "killed", spec, steps)
    return difference(folder / "alone", folder / "killed")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = torture(args.times, args.steps, args.seed, Path(folder))
    print(found or "equal to the last bit")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
