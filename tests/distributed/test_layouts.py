"""Many ranks do what one does: loss, norm, parameters and optimizer state after five steps."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from giantdsl.testing.ranks import RankPool
from giantdsl.train.parallel.replicas import check_replicas
from giantdsl.train.parallel.whole import gather_gradients, gather_parameters, gather_state
from giantdsl.train.step import StepResult
from tests.distributed.sliced_model import (
    ADAFACTOR,
    ADAMW,
    MOMENTUM,
    SGD,
    Layout,
    Runner,
    reference,
)

Gathered = dict[str, Tensor | None]


def train(
    rank: int, world: int, layout: Layout
) -> tuple[list[StepResult], Gathered, Gathered, Gathered]:
    """Steps of this rank; then parameters, state and gradients, whole on rank 0."""
    runner = Runner(layout, rank)
    results = [runner.step(step) for step in range(1, layout.steps + 1)]
    check_replicas(runner.optimizer)
    parameters = dict(gather_parameters(runner.optimizer))
    state = dict(gather_state(runner.optimizer))
    return results, parameters, state, dict(gather_gradients(runner.optimizer))


def check_equal(pool: RankPool, layout: Layout, *, rtol: float = 1e-10) -> None:
    found = pool.run(train, layout, ranks=layout.num_ranks)
    history, parameters, optimizer = reference(layout)
    results, *_ = found[0]
    assert all(other == results for other, *_ in found), "ranks disagree"
    assert [r.bad for r in results] == [None] * layout.steps
    for result, (loss, norm) in zip(results, history, strict=True):
        assert result.loss == pytest.approx(loss, rel=rtol)
        assert result.grad_norm == pytest.approx(norm, rel=rtol)
    _, mine, state, gradients = found[0]
    last = optimizer.gradients()
    for wanted, have in ((parameters, mine), (optimizer.state_tensors(), state), (last, gradients)):
        assert wanted.keys() == have.keys()
        for name, tensor in wanted.items():
            value = have[name]
            assert value is not None
            torch.testing.assert_close(
                value, tensor.detach(), rtol=rtol, atol=rtol, msg=lambda m, n=name: f"{n}: {m}"
            )


MESHES: list[dict[str, Any]] = [
    {"dp": 2},
    {"dp": 3},
    {"tp": 2},
    {"pp": 2},
    {"dp": 2, "tp": 2},
    {"dp": 2, "pp": 2},
    {"tp": 2, "pp": 2},
]


@pytest.mark.parametrize("mesh", MESHES, ids=str)
@pytest.mark.parametrize("kind", [SGD, ADAMW, ADAFACTOR], ids=lambda k: k.name)
def test_every_layout_takes_the_steps_of_one_process(
    ranks: RankPool, mesh: dict[str, Any], kind: Any
) -> None:
    check_equal(ranks, Layout(kind=kind, **mesh))


STORED = [
    {**mesh, "zero": zero} for mesh in MESHES for zero in (1, 2, 3) if zero < 3 or "pp" not in mesh
]


@pytest.mark.parametrize("mesh", STORED, ids=str)
def test_stored_in_pieces_it_is_the_same(ranks: RankPool, mesh: dict[str, Any]) -> None:
    check_equal(ranks, Layout(kind=MOMENTUM, **mesh))


@pytest.mark.parametrize("zero", [0, 2, 3])
def test_clipped_and_partly_frozen(ranks: RankPool, zero: int) -> None:
    layout = Layout(dp=2, tp=2, zero=zero, kind=ADAMW, clip=0.3, freeze=("up", "head"))
    check_equal(ranks, layout)


def test_without_overlap(ranks: RankPool) -> None:
    check_equal(ranks, Layout(dp=2, pp=2, kind=ADAMW, overlap=False))


@pytest.mark.parametrize("zero", [0, 1, 3])
def test_16_bit_modules_train_float32_masters(ranks: RankPool, zero: int) -> None:
    layout = Layout(dp=2, zero=zero, kind=ADAMW, precision="bf16", clip=1.0)
    results, parameters, state, _ = ranks.run(train, layout, ranks=2)[0]
    history, wanted, _ = reference(layout)
    for result, (loss, _) in zip(results, history, strict=True):
        assert result.loss == pytest.approx(loss, rel=2e-2)
    for name, tensor in parameters.items():
        assert tensor is not None and tensor.dtype == torch.float32
        torch.testing.assert_close(tensor, wanted[name].detach(), rtol=0, atol=0.02)
    assert all(t is not None and t.dtype == torch.float32 for t in state.values())
