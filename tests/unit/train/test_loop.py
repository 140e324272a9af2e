"""Whole runs of a tiny model."""

from __future__ import annotations

from pathlib import Path

import torch

from giantdsl.train.loop import run
from giantdsl.train.metrics import read_metrics
from tests.unit.train.tiny import call, tiny_job


def untimed(run_dir: Path) -> list[dict[str, object]]:
    """The metrics without what a clock gives."""
    timing = ("seconds", "tokens_per_s")
    return [
        {k: v for k, v in line.items() if k not in timing}
        for line in read_metrics(run_dir / "metrics.jsonl")
    ]


def assert_same(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> None:
    assert left.keys() == right.keys()
    for name in left:
        assert torch.equal(left[name], right[name]), name


def test_two_steps_resume_two_steps_equal_four(tmp_path: Path) -> None:
    run(tiny_job(tmp_path / "whole", steps=4))
    save = call("every", steps=2, keep=None)
    half = run(
        tiny_job(tmp_path / "halves", steps=2, lr=call("constant", peak=1e-2, warmup=3), save=save)
    )
    assert half.steps == 2
