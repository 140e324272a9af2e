"""Whole tensors on rank 0 and back: what one layout left, another takes up to the last bit."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from giantdsl.errors import GiantError
from giantdsl.testing.ranks import RankPool
from giantdsl.train.parallel.replicas import check_replicas
from giantdsl.train.parallel.whole import (
    gather_parameters,
    gather_state,
    scatter_parameters,
    scatter_state,
)
from tests.distributed.sliced_model import ADAFACTOR, ADAMW, Layout, Runner

Saved = dict[str, dict[str, Tensor]]


def save(rank: int, world: int, layout: Layout) -> Saved:
    runner = Runner(layout, rank)
    for step in range(1, 3):
        runner.step(step)
    return _saved(runner)


def load_and_save(rank: int, world: int, layout: Layout, saved: Saved) -> tuple[Saved, float]:
    """What a fresh optimizer holds after loading, and the norm of its next step."""
    runner = Runner(layout, rank)
    first = rank == 0
    scatter_parameters(runner.optimizer, saved["parameters"] if first else None)
    scatter_state(runner.optimizer, saved["state"] if first else None)
    check_replicas(runner.optimizer)
    return _saved(runner), runner.step(3).grad_norm


def _saved(runner: Runner) -> Saved:
    parameters = {n: t for n, t in gather_parameters(runner.optimizer) if t is not None}
    state = {n: t for n, t in gather_state(runner.optimizer) if t is not None}
    return {"parameters": parameters, "state": state}


LAYOUTS = [
    Layout(kind=ADAMW, dp=2, zero=1),
    Layout(kind=ADAMW, dp=2, tp=2, zero=3),
    Layout(kind=ADAMW, tp=2, pp=2),
    Layout(kind=ADAMW, dp=3, zero=2, freeze=("head",)),
    Layout(kind=ADAMW, dp=2, zero=1, precision="bf16", freeze=("head",)),
    Layout(kind=ADAFACTOR, tp=2, dp=2),
]


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_another_layout_takes_over_every_bit(ranks: RankPool, layout: Layout) -> None:
    saved = ranks.run(save, layout, ranks=layout.num_ranks)[0]
    norms = []
    for sizes in ({"dp": 1, "tp": 2}, {"dp": 2, "pp": 2}, {"dp": 1}):
        other = replace(layout, **{"dp": 1, "tp": 1, "pp": 1, "zero": 0, **sizes})
        loaded, norm = ranks.run(load_and_save, other, saved, ranks=other.num_ranks)[0]
        norms.append(norm)
        for kind in ("parameters", "state"):
            assert loaded[kind].keys() == saved[kind].keys()
            for name, tensor in saved[kind].items():
                assert torch.equal(loaded[kind][name], tensor), name
    rel = 0.05 if layout.precision == "bf16" else 1e-10
    assert norms == pytest.approx([norms[0]] * 3, rel=rel)


def spoiled(rank: int, world: int, layout: Layout, saved: Saved) -> str:
    runner = Runner(layout, rank)
    try:
        scatter_parameters(runner.optimizer, saved["parameters"] if rank == 0 else None)
    except GiantError as error:
        return str(error)
    return "nothing"


def test_every_rank_says_what_does_not_fit(ranks: RankPool) -> None:
    layout = Layout(kind=ADAMW, dp=2, tp=2)
    saved = ranks.run(save, layout, ranks=4)[0]
    fine = saved["parameters"]
    cases: dict[str, dict[str, Tensor]] = {
        "there is no tensor `gain`; the spec's model needs it": {
            n: t for n, t in fine.items() if n != "gain"
        },
        "there is a tensor `more`, which the spec's model has not": fine
        | {"more": torch.zeros(1, dtype=torch.float64)},
        "tensor `gain` is 4 of float32; the spec's model needs 4 of float64": fine
        | {"gain": fine["gain"].float()},
    }
    for text, parameters in cases.items():
        assert ranks.run(spoiled, layout, {"parameters": parameters}, ranks=4) == [text] * 4


def drifted(rank: int, world: int) -> str:
    runner = Runner(Layout(dp=2, tp=2), rank)
    check_replicas(runner.optimizer)
    if rank == 2:
        with torch.no_grad():
            runner.module.up.weight[0, 0] += 1e-12
    try:
        check_replicas(runner.optimizer)
    except GiantError as error:
        return str(error)
    return "nothing"


def test_copies_that_differ_are_named_on_every_rank(ranks: RankPool) -> None:
    text = "the copies of `up.weight` on rank 0 and rank 2 differ"
    assert ranks.run(drifted, ranks=4) == [text] * 4
