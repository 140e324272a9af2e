"""`metrics.jsonl`: one object a step, without gaps or doubles however often the run stopped."""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from giantdsl.train.files import write_atomically


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord:
    """What one step says of itself. `tokens` and `seconds` count from the start of the run.

    `skipped` names the first non-finite tensor of a step that updated nothing. `eval` is by
    name: `loss`, `perplexity`, `nats_per_byte`, each loss.
    """

    step: int
    loss: float
    losses: dict[str, float]
    tokens: int
    lr: float
    grad_norm: float
    tokens_per_s: float
    seconds: float
    skipped: str | None = None
    eval: dict[str, float] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Flat, in a fixed order; numbers that are not finite become null."""
        values: dict[str, Any] = {
            "step": self.step,
            "loss": self.loss,
            **{f"loss/{name}": value for name, value in self.losses.items()},
            "tokens": self.tokens,
            "lr": self.lr,
            "grad_norm": self.grad_norm,
            "tokens_per_s": round(self.tokens_per_s, 1),
            "seconds": round(self.seconds, 3),
        }
        if self.skipped is not None:
            values["skipped"] = self.skipped
        values |= {f"eval/{name}": value for name, value in self.eval.items()}
        return {key: _finite(value) for key, value in values.items()}


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


class MetricsFile:
    """Appends lines; each is whole in the file before `write` returns."""

    def __init__(self, path: Path, *, after_step: int) -> None:
        """Keep the lines of the steps up to `after_step`, which is where the run goes on."""
        _truncate(path, after_step)
        self._handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def write(self, record: StepRecord) -> None:
        line = json.dumps(record.as_json(), allow_nan=False) + "\n"
        os.write(self._handle, line.encode())

    def sync(self) -> None:
        """Wait until every line is on the disk; a checkpoint must not be ahead of its metrics."""
        os.fsync(self._handle)

    def close(self) -> None:
        os.close(self._handle)


def _truncate(path: Path, last_step: int) -> None:
    if not path.exists():
        return
    text = path.read_text(encoding="utf-8", errors="replace")
    kept = [line for line in text.splitlines() if 0 < _step_of(line) <= last_step]
    whole = "".join(f"{line}\n" for line in kept)
    if whole != text:
        write_atomically(path, whole)


def _step_of(line: str) -> int:
    """0 for a line that is not a step's: the process died while it wrote it."""
    try:
        value = json.loads(line)
    except ValueError:
        return 0
    step = value.get("step") if isinstance(value, dict) else None
    return step if isinstance(step, int) else 0


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The steps of a run, as written."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines if _step_of(line)]
