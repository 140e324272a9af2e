"""The hierarchy over groups inside and between hosts equals the flat collectives.

Over gloo with invented hosts: what is tested is which rank gets what, not who carries it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest
import torch
import torch.distributed as dist
from giantdsl.backends.nccl import Hierarchy, HostGrid
from torch import Tensor
from torch.distributed import ReduceOp

from giantdsl.testing.ranks import RankPool

HOSTS = {
    "2x2 in blocks": "aabb",
    "2x2 round robin": "abab",
    "3x2 in blocks": "aabbcc",
    "3x2 mixed": "abccba",
    "2x3 in blocks": "aaabbb",
}
SIZES = (1, 7, 60, 1001)
REDUCTIONS = {
    "sum": ReduceOp.SUM,
    "max": ReduceOp.MAX,
    "min": ReduceOp.MIN,
    "product": ReduceOp.PRODUCT,
}


@pytest.fixture(scope="module")
def ranks() -> Iterator[RankPool]:
    with RankPool(6) as pool:
        yield pool


def made(count: int, rank: int, dtype: torch.dtype) -> Tensor:
    generator = torch.Generator().manual_seed(1000 * count + rank)
    if dtype.is_floating_point:
        return torch.randn(count, generator=generator, dtype=dtype)
    return torch.randint(-3, 4, (count,), generator=generator, dtype=dtype)


def agree(ours: Tensor, flat: Tensor, where: str) -> None:
    if flat.is_floating_point():
        torch.testing.assert_close(ours, flat, rtol=1e-5, atol=1e-5, msg=lambda m: f"{where}: {m}")
    else:
        assert torch.equal(ours, flat), f"{where}: {ours} is not {flat}"


def compare_reductions(rank: int, world: int, hosts: str) -> bool:
    hierarchy = Hierarchy.make(hosts)
    for dtype, names in ((torch.int64, tuple(REDUCTIONS)), (torch.float32, ("sum",))):
        for count in SIZES:
            for name in names:
                op = REDUCTIONS[name]
                ours = made(count, rank, dtype)
                flat = ours.clone()
                hierarchy.all_reduce(ours, op)
                dist.all_reduce(flat, op)
                agree(ours, flat, f"all_reduce {name} of {count} {dtype}")
                whole = made(count * world, rank, dtype)
                kept = whole.clone()
                ours, flat = whole.new_empty(count), whole.new_empty(count)
                hierarchy.reduce_scatter_tensor(ours, whole, op)
                dist.reduce_scatter_tensor(flat, whole, op)
                agree(ours, flat, f"reduce_scatter {name} of {count} {dtype}")
                assert torch.equal(whole, kept), "the input of reduce_scatter was changed"
    return hierarchy.is_flat


def compare_moves(rank: int, world: int, hosts: str) -> bool:
    hierarchy = Hierarchy.make(hosts)
    for count in SIZES:
        block, whole = made(count, rank, torch.int64), made(count * world, rank, torch.int64)
        ours, flat = torch.empty_like(whole), torch.empty_like(whole)
        hierarchy.all_gather_into_tensor(ours, block)
        dist.all_gather_into_tensor(flat, block)
        agree(ours, flat, f"all_gather of {count}")
        hierarchy.all_to_all_single(ours, whole)
        dist.all_to_all_single(flat, whole)
        agree(ours, flat, f"all_to_all of {count}")
        for src in range(world):
            ours, flat = block.clone(), block.clone()
            hierarchy.broadcast(ours, src)
            dist.broadcast(flat, src)
            agree(ours, flat, f"broadcast of {count} from {src}")
    return hierarchy.is_flat


def average(rank: int, world: int, hosts: str) -> tuple[Tensor, Tensor]:
    hierarchy = Hierarchy.make(hosts)
    x, y = torch.full((3, 5), float(rank)), torch.empty(2)
    hierarchy.all_reduce(x, ReduceOp.AVG)
    hierarchy.reduce_scatter_tensor(y, torch.full((world, 2), float(rank)), ReduceOp.AVG)
    return x, y


def link_elements(rank: int, world: int, hosts: str, operation: str) -> int:
    """What this rank hands to groups that span hosts, counted at torch's calls."""
    hierarchy = Hierarchy.make(hosts)
    sent: list[int] = []
    counted = _Counted(hierarchy.rail, sent)
    size = 12 * world
    with counted:
        if operation == "all_reduce":
            hierarchy.all_reduce(torch.zeros(size))
        elif operation == "reduce_scatter":
            hierarchy.reduce_scatter_tensor(torch.zeros(12), torch.zeros(size))
        elif operation == "all_gather":
            hierarchy.all_gather_into_tensor(torch.zeros(size), torch.zeros(12))
        else:
            hierarchy.broadcast(torch.zeros(size), 0)
    return sum(sent)


class _Counted:
    """Notes the size of the larger tensor of each collective over one group."""

    def __init__(self, group: dist.ProcessGroup, sizes: list[int]) -> None:
        self._group, self._sizes = group, sizes
        self._patch = pytest.MonkeyPatch()

    def __enter__(self) -> None:
        for name in (
            "all_reduce",
            "reduce_scatter_tensor",
            "all_gather_into_tensor",
            "broadcast",
        ):
            self._patch.setattr(dist, name, self._noting(getattr(dist, name)))

    def __exit__(self, *unused: object) -> None:
        self._patch.undo()

    def _noting(self, call: Callable[..., object]) -> Callable[..., object]:
        def noted(*args: object, group: object = None, **more: object) -> object:
            assert group is not None, "a flat collective of the whole world"
            if group is self._group:
                self._sizes.append(max(a.numel() for a in args if isinstance(a, Tensor)))
            return call(*args, group=group, **more)

        return noted


def refusal(rank: int, world: int, hosts: Sequence[str], what: str) -> str:
    """What the call says: caught here, for a pool starts anew where a rank fails."""
    with pytest.raises(ValueError) as caught:
        misuse(Hierarchy.make(hosts), what)
    return str(caught.value)


def misuse(hierarchy: Hierarchy, what: str) -> None:
    if what == "blocks":
        hierarchy.all_gather_into_tensor(torch.zeros(7), torch.zeros(2))
    elif what == "splits":
        hierarchy.all_to_all_single(torch.zeros(7), torch.zeros(7))
    elif what == "average":
        hierarchy.all_reduce(torch.zeros(2, dtype=torch.int64), ReduceOp.AVG)
    else:
        hierarchy.all_reduce(torch.zeros(2, dtype=torch.int64), ReduceOp.BXOR)


def own_hosts(rank: int, world: int) -> tuple[bool, int]:
    """Without a list, on one machine: one host, so flat."""
    hierarchy = Hierarchy.make()
    x = torch.ones(3)
    hierarchy.all_reduce(x)
    return hierarchy.is_flat, int(x[0])


@pytest.mark.parametrize("name", HOSTS)
def test_reductions_equal_the_flat_ones(name: str, ranks: RankPool) -> None:
    hosts = HOSTS[name]
    found = ranks.run(compare_reductions, hosts, ranks=len(hosts), timeout_s=120)
    assert found == [False] * len(hosts)


@pytest.mark.parametrize("name", HOSTS)
def test_moves_equal_the_flat_ones(name: str, ranks: RankPool) -> None:
    hosts = HOSTS[name]
    found = ranks.run(compare_moves, hosts, ranks=len(hosts), timeout_s=120)
    assert found == [False] * len(hosts)


@pytest.mark.parametrize("hosts", ["aabbb", "aaaa", "abcd"])
def test_unequal_hosts_one_host_and_hosts_of_one_fall_back_on_flat(
    hosts: str, ranks: RankPool
) -> None:
    for function in (compare_reductions, compare_moves):
        assert all(ranks.run(function, hosts, ranks=len(hosts), timeout_s=120))


@pytest.mark.parametrize("hosts", ["aabb", "aaabb"])
def test_average_is_the_mean_over_all_ranks(hosts: str, ranks: RankPool) -> None:
    mean = (len(hosts) - 1) / 2
    for x, y in ranks.run(average, hosts, ranks=len(hosts)):
        assert torch.equal(x, torch.full((3, 5), mean)) and torch.equal(y, torch.full((2,), mean))


@pytest.mark.parametrize("operation", ["all_reduce", "reduce_scatter", "all_gather", "broadcast"])
def test_the_rails_of_a_host_carry_the_message_once(operation: str, ranks: RankPool) -> None:
    sent = ranks.run(link_elements, "aaabbb", operation, ranks=6)
    assert sum(sent[:3]) == sum(sent[3:]) == 12 * 6


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("blocks", "7 elements are not 4 blocks"),
        ("splits", "not 4 equal blocks"),
        ("average", "average of torch.int64"),
        ("reduction", "not reduced in two levels"),
    ],
)
def test_misuse_is_refused_before_anything_is_sent(
    what: str, message: str, ranks: RankPool
) -> None:
    assert all(message in said for said in ranks.run(refusal, "aabb", what, ranks=4))


def test_identities_must_name_every_rank(ranks: RankPool) -> None:
    said = ranks.run(refusal, "aab", "blocks", ranks=4)
    assert said == ["3 host identities for 4 ranks"] * 4


def test_ranks_tell_each_other_their_hosts(ranks: RankPool) -> None:
    assert ranks.run(own_hosts, ranks=4) == [(True, 4)] * 4


def test_the_grid_of_invented_hosts() -> None:
    grid = HostGrid.of("abccba")
    assert grid is not None and grid.rows == ((0, 5), (1, 4), (2, 3))
    assert grid.by_rail == [0, 1, 2, 3, 4, 5] and grid.by_host(1) == [2, 3, 1, 4, 0, 5]
    assert grid.position(4) == (1, 1) and (grid.num_hosts, grid.local_size) == (3, 2)
    assert HostGrid.of("aab") is None
