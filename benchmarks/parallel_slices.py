"""A layer sliced over two ranks of which one is there: what conversions cost beside communication.

The process group is torch's fake one, whose collectives return at once: what remains is the work
of this rank and what each way of slicing adds to it on the way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist
from parallel_megatron import has_megatron, megatron_layers
from parallel_peers import Layer, MegatronLayer, dtensor_layer
from parallel_setup import Case, build_rank, build_stages
from parallel_timing import Row, alternate, compare
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore

TOKENS, HEADS, LAYERS, RANKS = 128, 4, 4, 2
TARGETS = {64: 1.3, 256: 1.15, 1024: 1.05}
"""Ours / the local work, by hidden size (issue 3)."""
CALLS = {64: 8, 256: 4, 1024: 1}


def slices(rounds: int, hidden: Sequence[int]) -> list[Row]:
    """Milliseconds a layer, forward and backward."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=RANKS)
    try:
        return [row for size in hidden for row in one_size(size, rounds)]
    finally:
        dist.destroy_process_group()


def one_size(hidden: int, rounds: int) -> list[Row]:
    models = layers_of(hidden)
    torch.manual_seed(0)
    runs = {name: step_of(model, hidden, "sequence" in name) for name, model in models.items()}
    whole = alternate(runs, rounds, CALLS.get(hidden, 1), warm=3)
    times = {name: each.per(LAYERS) for name, each in whole.items()}
    target = TARGETS.get(hidden)
    pairs = [
        ("ours", "local work", target),
        ("ours", "Megatron's functions", None),
        *([("ours", "Megatron-core", 1.0)] if has_megatron() else []),
        ("ours", "DTensor", None),
        ("ours with an optimizer", "local work", target),
        ("ours, sequence", "local work", target),
        ("ours, sequence", "Megatron's functions, sequence", None),
        ("ours, sequence", "DTensor, sequence", None),
        ("Megatron's functions", "local work", None),
        ("Megatron's functions, sequence", "local work", None),
    ]
    return compare("slices", f"layer of {hidden}, tp 2", times, pairs)


def layers_of(hidden: int) -> dict[str, Sequence[nn.Module]]:
    """The same layers, as each way has them on rank 0 of 2."""
    mesh = init_device_mesh("cpu", (RANKS,), mesh_dim_names=("tp",))
    group = mesh.get_group("tp")

    def several(make: Callable[[], nn.Module]) -> list[nn.Module]:
        return [make() for _ in range(LAYERS)]

    megatron = (
        {"Megatron-core": megatron_layers(hidden, HEADS, TOKENS, RANKS, LAYERS)}
        if has_megatron()
        else {}
    )
    return megatron | {
        "local work": several(lambda: Layer(hidden, HEADS, RANKS)),
        "ours": our_layers(hidden, sequence=False),
        "ours with an optimizer": our_layers(hidden, sequence=False, optimizer=True),
        "Megatron's functions": several(lambda: MegatronLayer(hidden, HEADS, group, False)),
        "DTensor": several(lambda: dtensor_layer(Layer(hidden, HEADS), mesh, False)),
        "ours, sequence": our_layers(hidden, sequence=True),
        "Megatron's functions, sequence": several(
            lambda: MegatronLayer(hidden, HEADS, group, True)
        ),
        "DTensor, sequence": several(lambda: dtensor_layer(Layer(hidden, HEADS), mesh, True)),
    }


def our_layers(hidden: int, *, sequence: bool, optimizer: bool = False) -> Sequence[nn.Module]:
    """With `optimizer` the parameters have the hooks that tell ours of their gradients."""
    sizes = (f"dims.d={hidden}", f"dims.heads={HEADS}", f"dims.layers={LAYERS}")
    overrides = (*sizes, f"dims.s={TOKENS}", f"parallel.tp={RANKS}")
    case = Case("gpt.giant", overrides, "sequence_plan.giant" if sequence else None)
    model = build_rank(case, 0).model if optimizer else build_stages(case, 0)[0]
    (stage,) = model.stages.values()
    return list(stage.decoder)


def step_of(layers: Sequence[nn.Module], hidden: int, sequence: bool) -> Callable[[], None]:
    """Forward and backward through all layers; gradients are dropped."""
    x = torch.randn(1, TOKENS // RANKS if sequence else TOKENS, hidden)
    parameters: list[Tensor] = [p for layer in layers for p in layer.parameters()]

    def step() -> None:
        start = x.clone().requires_grad_()
        y = start
        for layer in layers:
            y = layer(y)
        y.sum().backward()
        for parameter in parameters:
            parameter.grad = None

    return step
