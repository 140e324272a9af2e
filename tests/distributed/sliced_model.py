"""A small model written by hand as the emitter would slice it, its plan, and steps of it.

It has what makes gradients of many ranks hard: a tied embedding, a gain whose gradient is partial
over tp, slices of unequal size, a parameter that only some rows reach and one that nothing does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from giantdsl.attrs import Config
from giantdsl.mesh.mesh import Mesh
from giantdsl.plan import AxisSplit, ParallelPlan, ParameterInfo, Plan, StageInfo, StoredParameter
from giantdsl.runtime.axes import Axes, Split
from giantdsl.runtime.groups import Group, Groups
from giantdsl.train.optim import MasterOptimizer, build_optimizer
from giantdsl.train.parallel.optimizer import (
    ParallelOptimizer,
    build_parallel_optimizer,
    combined_groups,
)
from giantdsl.train.parallel.step import take_parallel_step
from giantdsl.train.step import StepResult, gradient_norm

VOCAB, D, FF, FF_PADDED = 50, 4, 71, 72
ROWS, MICROBATCHES = 5, 2


def call(name: str, **kwargs: Any) -> Config:
    return Config(name, (), tuple(kwargs.items()))


SGD = call("sgd", momentum=0.0, nesterov=False, decay=0.0)
MOMENTUM = call("sgd", momentum=0.9, nesterov=True, decay=0.1)
ADAMW = call("adamw", betas=(0.9, 0.95), eps=1e-8, decay=0.1)
ADAFACTOR = call("adafactor", power=-0.8, threshold=1.0, eps=1e-3, beta1=0.9, scale=True, decay=0.1)


@dataclass(frozen=True)
class Layout:
    """Sizes of mesh axes, and what a run of steps is made of."""

    dp: int = 1
    tp: int = 1
    pp: int = 1
    zero: int = 0
    kind: Config = SGD
    clip: float = 0.0
    precision: str = "float64"
    freeze: tuple[str, ...] = ()
    steps: int = 5
    bucket_bytes: int = 2048
    overlap: bool = True
    poison: int | None = None
    """The rank whose gradient of `up.weight` is not finite at step 2."""

    @property
    def rate(self) -> float:
        """Large enough to show a wrong scale, too small for five steps to blow up roundings."""
        if self.kind.name == "sgd":
            return 0.05 if self.kind.kwargs[0] == ("momentum", 0.9) else 0.5
        return 0.01

    @property
    def num_ranks(self) -> int:
        return self.dp * self.tp * self.pp


def stored_parameters(pp: int) -> tuple[StoredParameter, ...]:
    first, last = (0,), (pp - 1,)
    everywhere = tuple(range(pp))

    def stored(
        name: str,
        shape: tuple[int, ...],
        stages: tuple[int, ...],
        *,
        split: int | None = None,
        partial: bool = False,
        lr: float = 1.0,
    ) -> StoredParameter:
        return StoredParameter(
            ParameterInfo(name, shape, lr, len(shape) > 1, None),
            shape,
            () if split is None else ((split, "ff"),),
            ("dp", "tp") if partial else ("dp",),
            stages,
        )

    return (
        stored("embed", (VOCAB, D), everywhere),
        stored("gain", (D,), first, partial=True, lr=0.5),
        stored("up.weight", (FF, D), first, split=0),
        stored("up.bias", (FF,), first, split=0),
        stored("down.weight", (D, FF), first, split=1, lr=2.0),
        stored("rare", (D,), last),
        stored("spare", (3, 3), last),
        stored("head", (VOCAB,), last),
    )


def parallel_plan(layout: Layout) -> ParallelPlan:
    parameters = stored_parameters(layout.pp)
    stages = tuple(
        StageInfo(
            i, "", "", "", (), (), (), (), (), ("lm",) if i == layout.pp - 1 else (), False, ""
        )
        for i in range(layout.pp)
    )
    return ParallelPlan(
        model=plain_plan(),
        mesh=(("pp", layout.pp), ("dp", layout.dp), ("cp", 1), ("ep", 1), ("tp", layout.tp)),
        splits=(AxisSplit("ff", ("tp",), FF, FF_PADDED, False),),
        stages=stages,
        values=(),
        parameters=parameters,
        schedule="gpipe",
        zero=layout.zero,
    )


def plain_plan() -> Plan:
    infos = tuple(stored.info for stored in stored_parameters(1))
    return Plan("tiny", "", "", "", (), (), infos, 0, ("lm",), ("lm",), (), 1, 1)


def initial_values() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(3)
    return {
        p.info.name: torch.randn(p.info.shape, generator=generator, dtype=torch.float64)
        for p in stored_parameters(1)
    }


class _ReduceFrom(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Group) -> Tensor:
        x = x.clone()
        if group.process_group is not None:
            dist.all_reduce(x, group=group.process_group)
        return x

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return grads[0], None


class _CopyTo(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Group) -> Tensor:
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return _ReduceFrom.apply(grads[0], ctx.group), None


class First(nn.Module):
    """Embedding and one feed-forward layer, sliced over tp."""

    def __init__(self, axes: Axes) -> None:
        super().__init__()
        self.axes = axes
        ff = axes.size("ff")
        self.embed = nn.Parameter(torch.empty(VOCAB, D))
        self.gain = nn.Parameter(torch.empty(D))
        self.up = nn.Linear(D, ff)
        self.down = nn.Linear(ff, D, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed[tokens]
        h = _CopyTo.apply(x, self.axes.tp) * self.gain
        return x + _ReduceFrom.apply(self.down(torch.tanh(self.up(h))), self.axes.tp)


class Last(nn.Module):
    """The loss: logits of the tied embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Parameter(torch.empty(VOCAB, D))
        _add_last(self)

    def forward(self, x: Tensor, tokens: Tensor) -> Tensor:
        return _loss(self, x, tokens)


class Both(First):
    """The whole model on one stage."""

    def __init__(self, axes: Axes) -> None:
        super().__init__(axes)
        _add_last(self)

    def forward(self, tokens: Tensor) -> Tensor:
        return _loss(self, super().forward(tokens), tokens)


def _add_last(module: nn.Module) -> None:
    module.rare = nn.Parameter(torch.empty(D))
    module.spare = nn.Parameter(torch.empty(3, 3))
    module.head = nn.Parameter(torch.empty(VOCAB))


def _loss(module: nn.Module, x: Tensor, tokens: Tensor) -> Tensor:
    """The sum over rows; `rare` is used where there is a token 0."""
    if bool((tokens == 0).any()):
        x = x + module.rare * (tokens == 0)[:, None]
    logits = F.linear(x, module.embed) + module.head
    wide = logits.float() if logits.dtype == torch.bfloat16 else logits
    return F.cross_entropy(wide, (tokens + 1) % VOCAB, reduction="sum")


def batch_rows(step: int) -> Tensor:
    """[ROWS] tokens. Token 0, which reaches `rare`, stands in the first row only."""
    generator = torch.Generator().manual_seed(step)
    tokens = torch.randint(1, VOCAB, (ROWS,), generator=generator)
    tokens[0] = 0
    return tokens


def fill(module: nn.Module, axes: Axes | None, dtype: torch.dtype) -> None:
    values = initial_values()
    for name, parameter in module.named_parameters():
        value = values[name]
        for stored in stored_parameters(1):
            if stored.info.name == name and axes is not None and stored.splits:
                dim = stored.splits[0][0]
                value = value.narrow(dim, axes.ff_tp.start, axes.ff_tp.size)
        parameter.data = value.to(dtype).clone(memory_format=torch.contiguous_format)


class Runner:
    """One rank of a layout: its stages, its optimizer, and the walk over its microbatches."""

    def __init__(self, layout: Layout, rank: int) -> None:
        self.layout = layout
        self.plan = parallel_plan(layout)
        mesh = Mesh.of({"pp": layout.pp, "dp": layout.dp, "tp": layout.tp})
        self.groups = Groups.make(mesh, rank, combined_groups(self.plan))
        self.at = mesh.coordinate(rank)
        self.axes = Axes(self.groups, ff=Split(FF, "tp", padded=FF_PADDED))
        if layout.pp == 1:
            module: nn.Module = Both(self.axes)
        else:
            module = First(self.axes) if self.at["pp"] == 0 else Last()
        dtype = torch.float64 if layout.precision == "float64" else torch.float32
        fill(module, self.axes, dtype)
        self.module = module
        self.optimizer: ParallelOptimizer = build_parallel_optimizer(
            layout.kind,
            self.plan,
            self.groups,
            {self.at["pp"]: module},
            precision=layout.precision,
            freeze=layout.freeze,
            bucket_bytes=layout.bucket_bytes,
            units={0: ("up",)},
        )

    def step(self, step: int) -> StepResult:
        return take_parallel_step(
            lambda: self._run_batch(step),
            self.optimizer,
            learning_rate=self.layout.rate,
            clip=self.layout.clip,
        )

    def _run_batch(self, step: int) -> Mapping[str, Tensor]:
        parts = (
            batch_rows(step).tensor_split(self.layout.dp)[self.at["dp"]].tensor_split(MICROBATCHES)
        )
        total = torch.zeros((), dtype=torch.float64)
        for i, tokens in enumerate(parts):
            last = i == len(parts) - 1
            if self.layout.overlap and last:
                self.optimizer.arm(self.at["pp"])
            if self.layout.pp == 1:
                loss = self.module(tokens) / ROWS
                loss.backward()
                total += loss.detach()
            elif self.at["pp"] == 0:
                self._run_first(tokens)
            else:
                total += self._run_last(tokens)
            if self.layout.poison == self.groups.rank and step == 2 and last:
                self._poison()
        return {"lm": total} if self.at["pp"] == self.layout.pp - 1 else {}

    def _run_first(self, tokens: Tensor) -> None:
        x = self.module(tokens)
        other = self.groups.pp.ranks[1]
        dist.send(x.detach(), other)
        gradient = torch.empty_like(x)
        dist.recv(gradient, other)
        x.backward(gradient)

    def _run_last(self, tokens: Tensor) -> Tensor:
        other = self.groups.pp.ranks[0]
        x = torch.empty(len(tokens), D, dtype=self.module.embed.dtype)
        dist.recv(x, other)
        x.requires_grad_()
        loss = self.module(x, tokens) / ROWS
        loss.backward()
        dist.send(x.grad, other)
        return loss.detach()

    def _poison(self) -> None:
        """As if this rank's kernel had overflowed."""
        gradient = self.module.up.weight.grad
        gradient[0, 0] = torch.inf


def reference(
    layout: Layout,
) -> tuple[list[tuple[float, float]], dict[str, Tensor], MasterOptimizer]:
    """Losses and norms of the same steps in one process, the parameters after them."""
    axes = Axes(Groups.single(), ff=Split(FF, "tp", padded=FF_PADDED))
    module = Both(axes)
    fill(module, None, torch.float64 if layout.precision == "float64" else torch.float32)
    optimizer = build_optimizer(
        layout.kind, plain_plan(), module, precision=layout.precision, freeze=layout.freeze
    )
    history = []
    for step in range(1, layout.steps + 1):
        optimizer.zero_grad()
        loss = module(batch_rows(step)) / ROWS
        loss.backward()
        gradients = optimizer.gradients()
        norm = gradient_norm(list(gradients.values())).item()
        history.append((loss.item(), norm))
        if layout.poison is not None and step == 2:
            continue
        if layout.clip > 0 and norm > layout.clip:
            torch._foreach_mul_(list(gradients.values()), layout.clip / norm)
        optimizer.step(layout.rate)
    return history, {**dict(module.named_parameters()), **optimizer.masters}, optimizer
