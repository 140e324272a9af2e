"""`train` on many ranks writes what one process writes: losses, norms, held-out loss, checkpoints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from giantdsl import resources
from giantdsl.driver import Compiled, compile_spec
from giantdsl.plan import ParallelPlan
from giantdsl.planning import make_parallel_plan
from giantdsl.running import make_job
from giantdsl.runtime.groups import Groups
from giantdsl.runtime.rank_model import mesh_of
from giantdsl.testing.ranks import RankPool
from giantdsl.train.job import TrainJob
from giantdsl.train.launch.failure import Progress
from giantdsl.train.loop import run
from giantdsl.train.many_ranks import group_sets
from giantdsl.train.ranks import Ranks

SMALL = (
    *("dims.d=64", "dims.heads=8", "dims.ff=96", "dims.vocab=256", "dims.layers=4", "dims.s=32"),
    *("dims.drop=0.1", "train.data=synthetic()", "train.tokenizer=none", "train.batch=14"),
    *("train.steps=20", "train.save=every(10)", "train.eval=every(10, batches=3)"),
)
EIGHT = ("parallel.tp=2", "parallel.pp=2", "parallel.dp=2")


def compiled(*overrides: str) -> Compiled:
    return compile_spec(resources.model_path("demo"), overrides=[*SMALL, *overrides])


def job_of(spec: Compiled, folder: Path) -> TrainJob:
    return make_job(spec, run_dir=folder, quiet=True)


def as_rank(rank: int, world: int, job: TrainJob, plan: ParallelPlan) -> None:
    groups = Groups.make(mesh_of(plan), rank, group_sets(plan))
    run(job, Ranks(plan, groups, rank, Progress()))


def metrics(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def train(ranks: RankPool, folder: Path, *overrides: str) -> list[dict[str, Any]]:
    spec = compiled(*overrides)
    plan = make_parallel_plan(spec)
    world = mesh_of(plan).size
    job = job_of(spec, folder)
    if world == 1:
        run(job)
    else:
        ranks.run(as_rank, job, plan, ranks=world, timeout_s=240)
    return metrics(folder)


@pytest.fixture(scope="module")
def alone(ranks: RankPool, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("alone")
    train(ranks, folder)
    return folder


def assert_same_run(found: list[dict[str, Any]], wanted: list[dict[str, Any]]) -> None:
    """Losses and norms within 1e-5 (must show 2 of the issue), in float32, dropout on."""
    assert [line["step"] for line in found] == [line["step"] for line in wanted]
    pairs = list(zip(found, wanted, strict=True))
    for key in ("loss", "loss/lm", "grad_norm", "lr", "tokens"):
        for a, b in pairs:
            assert a[key] == pytest.approx(b[key], rel=1e-5), (key, a["step"])
    evaluated = [(a["eval/loss"], b["eval/loss"]) for a, b in pairs if "eval/loss" in b]
    assert len(evaluated) == 2
    assert all(a == pytest.approx(b, rel=1e-5) for a, b in evaluated)


@pytest.mark.parametrize("microbatch", [7, 3, 1], ids=["one", "three", "seven"])
def test_eight_ranks_log_what_one_process_logs(
    ranks: RankPool, alone: Path, tmp_path: Path, microbatch: int
) -> None:
    """Seven rows a data rank: 1, 3 and 7 microbatches, of which 14 is no multiple."""
    found = train(ranks, tmp_path, *EIGHT, f"train.microbatch={microbatch}")
    assert_same_run(found, metrics(alone))


@pytest.mark.parametrize(
    "overrides",
    [
        ("parallel.pp=4", "parallel.schedule=zero_bubble", "train.microbatch=2"),
        ("parallel.dp=2", "parallel.zero=3", "train.microbatch=2"),
        ("parallel.dp=2", "parallel.zero=2", "parallel.tp=2", "parallel.recompute=full"),
    ],
    ids=["pp4", "zero3", "zero2 tp2"],
)
def test_other_layouts_too(
    ranks: RankPool, alone: Path, tmp_path: Path, overrides: tuple[str, ...]
) -> None:
    assert_same_run(train(ranks, tmp_path, *overrides), metrics(alone))


def test_a_run_goes_on_in_another_layout(ranks: RankPool, alone: Path, tmp_path: Path) -> None:
    """Ten steps on four ranks, ten on one process: twenty steps (invariant 17)."""
    train(ranks, tmp_path, "parallel.tp=2", "parallel.pp=2", "train.steps=10")
    found = train(ranks, tmp_path, "parallel.dp=2", "parallel.zero=1")
    assert_same_run(found, metrics(alone))
    made, wanted = (
        load_file(folder / "checkpoints" / "step-00000020" / "model.safetensors")
        for folder in (tmp_path, alone)
    )
    assert made.keys() == wanted.keys()
    for name, tensor in wanted.items():
        assert made[name].shape == tensor.shape
        assert float((made[name] - tensor).abs().max()) < 1e-5, name


def test_the_same_layout_goes_on_to_the_same_bits(ranks: RankPool, tmp_path: Path) -> None:
    layout = ("parallel.tp=2", "parallel.pp=2", "train.microbatch=5")
    train(ranks, tmp_path / "whole", *layout)
    train(ranks, tmp_path / "parts", *layout, "train.steps=10")
    train(ranks, tmp_path / "parts", *layout)
    whole, parts = (
        load_file(tmp_path / name / "checkpoints" / "step-00000020" / "model.safetensors")
        for name in ("whole", "parts")
    )
    assert all(tensor.equal(parts[name]) for name, tensor in whole.items())
