"""Two ranks with the same model and different rows: our sums and ZeRO against DDP and FSDP2.

All wrap the same emitted module and decay the same parameters, so that only what is around them
differs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
import torch.distributed as dist
from parallel_setup import Case, build_rank, even_shares, tokens
from parallel_timing import Row, Times, alternate, compare, of_all_ranks
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

from giantdsl.driver import compile_spec, make_plan
from giantdsl.runtime.loader import build_module
from giantdsl.testing.ranks import RankPool
from giantdsl.train.many_ranks import ManyRanks

RANKS, LENGTH, VOCAB, RATE = 2, 64, 256, 1e-4


def data(pool: RankPool, rounds: int, hidden: int, layers: int, calls: int) -> list[Row]:
    """Milliseconds of gradients alone, and of whole steps with AdamW and a norm."""
    case = Case.of(
        "gpt.giant",
        f"dims.d={hidden}",
        f"dims.layers={layers}",
        f"dims.s={LENGTH}",
        f"dims.vocab={VOCAB}",
        f"train.batch={RANKS}",
        "train.clip=1.0",
    )
    found = pool.run(on_rank, case, rounds, calls, ranks=RANKS, timeout_s=600)
    times = of_all_ranks(found)
    what = f"{layers} layers of {hidden}"
    gradients = [
        ("zero 0, gradients", f"{peer}, gradients", target)
        for peer, target in (("plain", None), ("DDP", 1.0), ("FSDP2", 1.0))
    ]
    steps = [
        (f"zero {zero}, step", f"{peer}, step", target)
        for zero, peer, target in (
            (0, "plain", None),
            (0, "DDP", 1.0),
            (0, "DDP by labels", 1.0),
            (1, "DDP", 1.0),
            (1, "DDP + ZeRO-1", 1.0),
            (2, "DDP", 1.0),
            (3, "FSDP2", None),
        )
    ]
    pairs = [*gradients, ("DDP, gradients", "plain, gradients", None), *steps]
    return compare("data parallel", what, times, pairs)


def on_rank(rank: int, world: int, case: Case, rounds: int, calls: int) -> dict[str, Times]:
    """All ways in turn, on each of the ranks."""
    batch = tokens(1, LENGTH, VOCAB, seed=rank)
    gradients: dict[str, Callable[[], None]] = {}
    steps: dict[str, Callable[[], None]] = {}
    for zero in (0, 1, 2, 3):
        sized = Case(case.spec, (*case.overrides, f"parallel.dp={world}", f"parallel.zero={zero}"))
        many = build_rank(sized, rank)
        if zero == 0:
            gradients["zero 0, gradients"] = our_gradients(many, batch)
        steps[f"zero {zero}, step"] = our_step(many, batch, world)
    for name in ("plain", "DDP", "FSDP2"):
        gradients[f"{name}, gradients"] = peer_gradients(wrapped(case, name), batch)
        steps[f"{name}, step"] = peer_step(wrapped(case, name), batch)
    steps["DDP by labels, step"] = peer_step(wrapped(case, "DDP"), batch, by_labels=True)
    steps["DDP + ZeRO-1, step"] = peer_step(wrapped(case, "DDP"), batch, divided=True)
    return alternate(gradients, rounds, calls, warm=4) | alternate(steps, rounds, calls, warm=4)


def our_gradients(many: ManyRanks, batch: Mapping[str, Tensor]) -> Callable[[], None]:
    shares = [{name: share / RANKS for name, share in even_shares([batch])[0].items()}]

    def run() -> None:
        many.optimizer.zero_grad()
        many.executor.run([batch], [None], shares)
        many.optimizer.finish()

    return run


def our_step(many: ManyRanks, batch: Mapping[str, Tensor], world: int) -> Callable[[], None]:
    def run() -> None:
        many.step(1, range(world), batch, RATE)

    return run


@dataclass(frozen=True, slots=True)
class Peer:
    """The emitted module of one process inside what a peer puts around it.

    `decayed` and `plain` are its parameters, in two groups of an optimizer as ours are.
    """

    model: nn.Module
    decayed: list[nn.Parameter]
    plain: list[nn.Parameter]

    @property
    def parameters(self) -> list[nn.Parameter]:
        return [*self.decayed, *self.plain]


def wrapped(case: Case, name: str) -> Peer:
    plan = make_plan(compile_spec(case.path, overrides=case.overrides))
    inner = build_module(plan, "cpu", seed=0, dtype=torch.float32)
    model: nn.Module = WithLoss(inner)
    if name == "DDP":
        model = DistributedDataParallel(model, gradient_as_bucket_view=True)
    if name == "FSDP2":
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        for layer in inner.decoder:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
    own = dict(inner.named_parameters())
    decayed, plain = (
        [own[info.name] for info in plan.parameters if info.decay == decays]
        for decays in (True, False)
    )
    return Peer(model, decayed, plain)


class WithLoss(nn.Module):
    """Returns the loss: DDP and FSDP2 want to see what is differentiated."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, tokens: Tensor, labels: Tensor) -> Tensor:
        self.inner(tokens, labels)
        return self.inner.losses["lm"]


def peer_gradients(peer: Peer, batch: Mapping[str, Tensor]) -> Callable[[], None]:
    parameters = peer.parameters

    def run() -> None:
        peer.model(**batch).backward()
        for parameter in parameters:
            parameter.grad = None

    return run


def peer_step(
    peer: Peer, batch: Mapping[str, Tensor], *, divided: bool = False, by_labels: bool = False
) -> Callable[[], None]:
    """With a clipped norm, and the loss read, as a training loop does.

    `by_labels`: ranks weigh what valid labels they have, as ours do, so that the loss is the mean
    over the batch's labels; otherwise it is the mean of the ranks' means.
    """
    parameters = peer.parameters
    groups = [
        {"params": peer.decayed, "weight_decay": 0.1},
        {"params": peer.plain, "weight_decay": 0.0},
    ]
    settings = {"lr": RATE, "betas": (0.9, 0.95), "fused": True}
    optimizer: torch.optim.Optimizer
    if divided:
        optimizer = ZeroRedundancyOptimizer(groups, torch.optim.AdamW, **settings)
    else:
        optimizer = torch.optim.AdamW(groups, **settings)

    def run() -> None:
        loss = peer.model(**batch)
        if by_labels:
            loss = loss * share_of_labels(batch["labels"])
        loss.backward()
        norm = nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        float(norm.full_tensor() if hasattr(norm, "full_tensor") else norm)
        total = loss.detach().clone()
        dist.all_reduce(total)
        float(total)

    return run


def share_of_labels(labels: Tensor) -> Tensor:
    """This rank's share of all valid labels, times the ranks: DDP divides by their number."""
    own = (labels != -100).sum().double()
    total = own.clone()
    dist.all_reduce(total)
    return own / total * dist.get_world_size()
