"""Sums over ranks: their bits, when they start, and who looks at them."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from giantdsl import resources
from giantdsl.driver import compile_spec
from giantdsl.errors import GiantError
from giantdsl.planning import make_parallel_plan
from giantdsl.running import make_job
from giantdsl.runtime.groups import Group, Groups
from giantdsl.runtime.rank_model import mesh_of
from giantdsl.testing.ranks import RankPool
from giantdsl.train.many_ranks import build_many_ranks, group_sets
from giantdsl.train.parallel.sums import start_sum, sum_over
from tests.distributed.sliced_model import Layout, Runner, batch_rows


def job(rank: int, world: int) -> Group:
    ranks = tuple(range(world))
    return Group("all", world, rank, ranks, dist.new_group(list(ranks)))


def terms(rank: int, size: int, dtype: torch.dtype = torch.float32) -> Tensor:
    generator = torch.Generator().manual_seed(rank)
    return (torch.randn(size, generator=generator) * 10.0 ** (rank * 3)).to(dtype)


def sums_at_offsets(rank: int, world: int) -> list[Tensor]:
    """One tensor, summed with more and more in front of it in the message."""
    group, own = job(rank, world), terms(rank, 100)
    return [
        sum_over(torch.cat([torch.zeros(front), own]), group)[front:] for front in (0, 7, 33, 500)
    ]


@pytest.mark.parametrize("world", [2, 3, 4])
def test_a_sum_has_the_same_bits_wherever_it_lies_in_the_message(
    ranks: RankPool, world: int
) -> None:
    found = ranks.run(sums_at_offsets, ranks=world)
    wanted = terms(0, 100)
    for rank in range(1, world):
        wanted = wanted + terms(rank, 100)
    for sums in found:
        assert all(torch.equal(total, wanted) for total in sums)


def scattered(rank: int, world: int) -> Tensor:
    pending = start_sum(terms(rank, 3 * world), job(rank, world), scatter=True)
    return pending.chunk().clone()


@pytest.mark.parametrize("world", [2, 3])
def test_a_chunk_has_the_bits_of_the_whole_sum(ranks: RankPool, world: int) -> None:
    wanted = terms(0, 3 * world)
    for rank in range(1, world):
        wanted = wanted + terms(rank, 3 * world)
    assert torch.equal(torch.cat(ranks.run(scattered, ranks=world)), wanted)


def bf16_sum(rank: int, world: int) -> float:
    values = [1.0, 2.0**-8, 2.0**-8][rank]
    return float(sum_over(torch.full((3,), values, dtype=torch.bfloat16), job(rank, world))[0])


def test_16_bit_sums_add_up_in_float32(ranks: RankPool) -> None:
    """Added in bfloat16, both small terms would be lost, one after the other."""
    assert ranks.run(bf16_sum, ranks=3) == [1.0078125] * 3


def gradients_left(rank: int, world: int, arm: bool) -> set[str]:
    """The parameters whose gradient is still with the module after the last backward pass."""
    runner = Runner(Layout(dp=2, bucket_bytes=1, overlap=arm), rank)
    runner.optimizer.zero_grad()
    runner._run_batch(1)
    left = {n for n, p in runner.module.named_parameters() if p.grad is not None}
    runner.optimizer.finish()
    return left


def test_gradients_leave_during_the_last_backward_pass(ranks: RankPool) -> None:
    for early, late in zip(
        ranks.run(gradients_left, True, ranks=2),
        ranks.run(gradients_left, False, ranks=2),
        strict=True,
    ):
        # `spare` has none, so that what comes after it waits: the order is the same everywhere.
        assert "head" not in early
        assert {"head", "embed", "up.weight"} <= late
        assert early < late


def left_after_the_stage(rank: int, world: int, bucket_bytes: int) -> tuple[set[str], set[str]]:
    """Those of one backward pass, before and after the rank hears that it was the stage's last."""
    runner = Runner(Layout(dp=2, bucket_bytes=bucket_bytes), rank)
    runner.optimizer.zero_grad()
    runner.optimizer.arm(0)
    runner.module(batch_rows(1)).backward()
    before = {n for n, p in runner.module.named_parameters() if p.grad is not None}
    runner.optimizer.stage_done(0)
    after = {n for n, p in runner.module.named_parameters() if p.grad is not None}
    runner.optimizer.finish()
    return before, after


@pytest.mark.parametrize("bucket_bytes", [1, 2**20])
def test_all_gradients_of_a_stage_leave_with_its_last_pass(
    ranks: RankPool, bucket_bytes: int
) -> None:
    """Those too that wait behind `spare`, which has none."""
    for before, after in ranks.run(left_after_the_stage, bucket_bytes, ranks=2):
        assert before
        assert not after


def hooks(rank: int, world: int, layout: Layout) -> dict[str, int]:
    """How many functions of ours the backward pass calls for each parameter."""
    runner = Runner(layout, rank)
    parameters = runner.module.named_parameters()
    return {n: len(p._post_accumulate_grad_hooks or ()) for n, p in parameters}


def test_the_last_bucket_does_without_hooks(ranks: RankPool) -> None:
    (one, _) = ranks.run(hooks, Layout(dp=2, bucket_bytes=2**20), ranks=2)
    assert set(one.values()) == {0}
    (several, _) = ranks.run(hooks, Layout(dp=2, bucket_bytes=1), ranks=2)
    assert several["head"] == 1
    assert list(several.values()).count(0) == 1
    (widened, _) = ranks.run(hooks, Layout(dp=2, precision="bf16", bucket_bytes=2**20), ranks=2)
    assert set(widened.values()) == {1}


def looked_at(rank: int, world: int, zero: int) -> tuple[int, int]:
    """Elements that a rank looks at for the norm, and that it has."""
    optimizer = Runner(Layout(dp=2, zero=zero, bucket_bytes=2**20), rank).optimizer
    optimizer.zero_grad()
    (summed,) = optimizer._reducer.finish()
    return summed.own.numel(), summed.flat.numel()


def test_ranks_with_the_same_sums_share_out_the_norm(ranks: RankPool) -> None:
    for own, have in ranks.run(looked_at, 0, ranks=2):
        assert own == have // 2
    for own, have in ranks.run(looked_at, 1, ranks=2):
        assert own == have


def one_backward_too_many(rank: int, world: int, bucket_bytes: int) -> str:
    runner = Runner(Layout(dp=2, bucket_bytes=bucket_bytes), rank)
    runner.optimizer.zero_grad()
    runner.optimizer.arm(0)
    runner.module(batch_rows(1)).backward()
    runner.optimizer.stage_done(0)
    runner.module(batch_rows(1)).backward()
    try:
        runner.optimizer.finish()
    except GiantError as error:
        return str(error)
    return "nothing"


@pytest.mark.parametrize("bucket_bytes", [1, 2**20])
def test_a_gradient_that_comes_too_late_is_an_error(ranks: RankPool, bucket_bytes: int) -> None:
    for text in ranks.run(one_backward_too_many, bucket_bytes, ranks=2):
        assert "a gradient of `head` came after the last backward pass" in text


def left_after_a_batch(rank: int, world: int) -> set[str]:
    """The parameters whose gradients wait for `finish` on a rank of a training run."""
    compiled = compile_spec(
        resources.model_path("gpt2"), overrides=("parallel.dp=2",), profiles=("tiny",)
    )
    plan = make_parallel_plan(compiled)
    groups = Groups.make(mesh_of(plan), rank, group_sets(plan))
    many = build_many_ranks(make_job(compiled), plan, groups, torch.device("cpu"))
    tokens = torch.randint(250, (2, 32), generator=torch.Generator().manual_seed(rank))
    parts = many.parts({"tokens": tokens, "labels": tokens}, 4)
    many.optimizer.zero_grad()
    many.executor.run(parts, many.noise(1, range(2), parts), many.shares(parts).each)
    parameters = [p for stage in many.model.stages.values() for p in stage.named_parameters()]
    left = {name for name, parameter in parameters if parameter.grad is not None}
    many.optimizer.finish()
    return left


def test_training_runs_tell_when_a_stage_is_done(ranks: RankPool) -> None:
    assert ranks.run(left_after_a_batch, ranks=2) == [set(), set()]
