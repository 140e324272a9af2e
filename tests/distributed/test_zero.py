"""ZeRO changes where things lie, and nothing else: to the last bit."""

from __future__ import annotations

import warnings

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from giantdsl.attrs import Config
from giantdsl.errors import SettingsError
from giantdsl.runtime.groups import Group
from giantdsl.testing.ranks import RankPool
from giantdsl.train.parallel.fully_sharded import layers_of, shard_fully
from giantdsl.train.parallel.whole import gather_parameters, gather_state
from tests.distributed.sliced_model import ADAMW, MOMENTUM, Layout, Runner


def final_tensors(rank: int, world: int, layout: Layout) -> dict[str, Tensor | None]:
    runner = Runner(layout, rank)
    for step in range(1, layout.steps + 1):
        runner.step(step)
    return dict(gather_parameters(runner.optimizer)) | dict(gather_state(runner.optimizer))


def assert_same_bits(pool: RankPool, *layouts: Layout) -> None:
    first, *others = (pool.run(final_tensors, x, ranks=x.num_ranks)[0] for x in layouts)
    for other in others:
        assert first.keys() == other.keys()
        for name, tensor in first.items():
            assert torch.equal(tensor, other[name]), name


@pytest.mark.parametrize("kind", [ADAMW, MOMENTUM], ids=lambda k: k.name)
@pytest.mark.parametrize("sizes", [(2, 1, 1), (3, 1, 1), (2, 2, 1), (2, 1, 2)], ids=str)
def test_zero_1_and_2_have_the_bits_of_zero_0(
    ranks: RankPool, kind: Config, sizes: tuple[int, int, int]
) -> None:
    dp, tp, pp = sizes
    layouts = [
        Layout(dp=dp, tp=tp, pp=pp, zero=zero, kind=kind, precision="float32", clip=1.0)
        for zero in (0, 1, 2)
    ]
    assert_same_bits(ranks, *layouts)


def test_16_bit_modules_too(ranks: RankPool) -> None:
    layouts = [Layout(dp=2, zero=zero, kind=ADAMW, precision="bf16") for zero in (0, 1, 2)]
    assert_same_bits(ranks, *layouts)


@pytest.mark.parametrize("zero", [0, 1])
def test_buckets_of_any_size_give_the_same_bits(ranks: RankPool, zero: int) -> None:
    layouts = [
        Layout(dp=3, zero=zero, kind=ADAMW, precision="float32", bucket_bytes=size, overlap=over)
        for size, over in ((1, True), (2000, False), (2**20, True))
    ]
    assert_same_bits(ranks, *layouts)


def state_size(rank: int, world: int, layout: Layout) -> tuple[int, int]:
    """Elements of moments, and of gradients left after a step."""
    runner = Runner(layout, rank)
    runner.step(1)
    moments = runner.optimizer.state_tensors().items()
    left = sum(g.untyped_storage().nbytes() for g in _storages(runner.optimizer.gradients()))
    return sum(t.numel() for n, t in moments if n.startswith("exp_avg/")), left


def _storages(gradients: dict[str, Tensor]) -> list[Tensor]:
    return list({g.untyped_storage().data_ptr(): g for g in gradients.values()}.values())


def test_state_and_from_zero_2_gradients_are_divided(ranks: RankPool) -> None:
    sizes = {
        zero: ranks.run(state_size, Layout(dp=2, zero=zero, kind=ADAMW), ranks=2)
        for zero in (0, 1, 2)
    }
    whole, bytes_whole = sizes[0][0]
    assert sum(moments for moments, _ in sizes[1]) == whole
    # Not half: in a model this small what fills up to 64 elements counts.
    assert max(moments for moments, _ in sizes[1]) < 0.75 * whole
    assert sizes[1][0][1] == bytes_whole
    assert sizes[2][0][1] == bytes_whole // 2


class _Tied(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Linear(3, 3) for _ in range(3)])
        self.head = torch.nn.Linear(3, 3)
        self.head.weight = self.layers[1].weight
        self.layers[0].inner = torch.nn.ModuleList([torch.nn.Linear(3, 3)])


def test_layers_are_gathered_alone_unless_their_weights_are_used_elsewhere() -> None:
    assert layers_of(_Tied()) == ["layers.0", "layers.2"]


def test_a_list_within_a_list_is_no_layer() -> None:
    inner = [nn.ModuleList(nn.Linear(2, 2) for _ in range(2)) for _ in range(2)]
    module = nn.ModuleDict({"groups": nn.ModuleList([*inner, nn.Linear(2, 2)])})
    assert layers_of(module) == ["groups.2", "groups.0.0", "groups.0.1", "groups.1.0", "groups.1.1"]


class _Losing(torch.nn.Module):
    """Leaves its loss where stages leave theirs, and returns something else."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Linear(3, 3, dtype=torch.float64)])
        self.scale = torch.nn.Parameter(torch.ones(3, dtype=torch.float64))
        self.losses: dict[str, Tensor] = {}

    def forward(self, x: Tensor) -> tuple[Tensor]:
        y = self.layers[0](x) * self.scale
        self.losses = {"lm": y.square().sum()}
        return (y[0],)


def sharded_losses(rank: int, world: int) -> list[float]:
    """Errors of the gradients of losses that a fully sharded stage does not return."""

    torch.manual_seed(0)
    module, plain = _Losing(), _Losing()
    plain.load_state_dict(module.state_dict())
    group = Group("dp", world, rank, tuple(range(world)), dist.new_group(list(range(world))))
    seen: set[str] = set()
    shard_fully(
        module,
        layers_of(module),
        group,
        dtype=torch.float64,
        master=torch.float64,
        kept_whole=(),
        reached=seen.add,
    )
    data = torch.randn(world, 2, 4, 3, dtype=torch.float64)
    for part in data[rank]:
        with warnings.catch_warnings():
            # FSDP warns of views in what it is shown.
            warnings.simplefilter("error", UserWarning)
            (result,) = module(part)
        assert torch.is_tensor(result)
        module.losses["lm"].backward()
    for part in data.flatten(0, 1):
        plain(part)
        plain.losses["lm"].backward()
    assert seen == {"layers.0.weight", "layers.0.bias", "scale"}
    pairs = zip(module.parameters(), plain.parameters(), strict=True)
    return [float((p.grad.full_tensor() - q.grad).abs().max()) for p, q in pairs]


def test_fully_sharded_stages_need_not_return_their_losses(ranks: RankPool) -> None:
    for errors in ranks.run(sharded_losses, ranks=2):
        assert max(errors) < 1e-12


def refused(rank: int, world: int, layout: Layout) -> str:
    try:
        Runner(layout, rank)
    except SettingsError as error:
        return str(error)
    return "nothing"


def test_what_cannot_be_right_is_refused(ranks: RankPool) -> None:
    for text in ranks.run(refused, Layout(dp=2, pp=2, zero=3), ranks=4):
        assert text.startswith("`parallel.zero = 3` does not go with `parallel.pp = 2`")
