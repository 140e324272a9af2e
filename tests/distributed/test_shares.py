"""What microbatches are of the whole batch, over ranks that do not wait for each other."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist

from giantdsl.runtime.groups import Group
from giantdsl.testing.ranks import RankPool
from giantdsl.train.parallel.shares import BatchShares


def job(world: int, rank: int) -> Group:
    ranks = tuple(range(world))
    return Group("all", world, rank, ranks, dist.new_group(list(ranks)) if world > 1 else None)


def shares_of(
    rank: int, world: int, weights: list[list[dict[str, float]]]
) -> list[dict[str, float]]:
    batch = BatchShares(weights[rank], job(world, rank), torch.device("cpu"))
    found = [dict(each) for each in batch.each]
    batch.wait()
    return found


@pytest.mark.parametrize("world", [1, 2])
def test_shares_are_of_all_microbatches_of_all_ranks(ranks: RankPool, world: int) -> None:
    weights = [
        [{"": 1.0, "lm": 3.0}, {"": 2.0, "lm": 0.0}],
        [{"": 3.0, "lm": 5.0}, {"": 2.0, "lm": 0.0}],
    ][:world]
    rows, labels = ((3.0, 3.0), (8.0, 8.0))[world - 1]
    wanted = [[{"": w[""] / rows, "lm": w["lm"] / labels} for w in own] for own in weights]
    assert ranks.run(shares_of, weights, ranks=world) == wanted


def test_a_loss_without_any_label_has_no_share(ranks: RankPool) -> None:
    weights = [[{"": 1.0, "lm": 0.0}], [{"": 1.0, "lm": 0.0}]]
    assert ranks.run(shares_of, weights, ranks=2) == [[{"": 0.5, "lm": 0.0}]] * 2


def late_rank(rank: int, world: int) -> float:
    """Rank 1 comes to the batch only when it hears that rank 0 has gone on."""
    group, word = job(world, rank), torch.zeros(1)
    if rank == 1:
        dist.recv(word, 0)
    batch = BatchShares([{"": 1.0}], group, torch.device("cpu"))
    if rank == 0:
        dist.send(word, 1)
    return batch.each[0][""]


def test_nobody_waits_before_the_losses_are_weighed(ranks: RankPool) -> None:
    assert ranks.run(late_rank, ranks=2, timeout_s=20.0) == [0.5, 0.5]
