"""A pipeline written by hand, its plan, and what one process computes with the same stages.

Everything that may cross a cut does: a float with a gradient, a skip that most stages only pass
on, integers, booleans, a table without batch axis or gradient, and a value that nobody uses.
Losses are on two stages, one stage draws random numbers, and results are not contiguous.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from giantdsl.mesh.mesh import Mesh
from giantdsl.plan import InputInfo, ParallelPlan, Plan, StageInfo, ValueInfo
from giantdsl.runtime.axes import Axes, Split
from giantdsl.runtime.executor import Executor
from giantdsl.runtime.groups import Groups
from giantdsl.runtime.weight_gradients import Linear

VOCAB, D, LENGTH = 11, 6, 8
Part = dict[str, Tensor]
Shares = Mapping[str, float]


def value(name: str, axes: str, dtype: str = "float", *, grad: bool = False) -> ValueInfo:
    """`axes` are letters: b, s and d."""
    sizes = {"b": None, "s": LENGTH, "d": D}
    split = tuple(("dp", "ep") if axis == "b" else ("cp",) if axis == "s" else () for axis in axes)
    return ValueInfo(name, tuple(axes), tuple(sizes[a] for a in axes), split, dtype, grad)


VALUES = (
    value("x", "bsd", grad=True),
    value("skip", "bsd", grad=True),
    value("unused", "bd", grad=True),
    value("ids", "bs", "int"),
    value("mask", "bs", "bool"),
    value("table", "sd"),
)
INPUTS = (
    InputInfo("tokens", ("b", "s"), (None, LENGTH), "v", VOCAB, (1,), False),
    InputInfo("scale", ("b",), (None,), "float", None, (), False),
    InputInfo("labels", ("b", "s"), (None, LENGTH), "v", VOCAB, (1,), True),
)


class Stage(nn.Module):
    """Stage `index` of `count`. The first makes everything, the last has the loss `lm`."""

    def __init__(self, index: int, count: int) -> None:
        super().__init__()
        self.index, self.is_last = index, index == count - 1
        self.losses: dict[str, Tensor] = {}
        self.mix = Linear(D, D)
        self.gain = nn.Parameter(torch.ones(D))
        if index == 0:
            self.embed = nn.Parameter(torch.empty(VOCAB, D))
        if self.is_last:
            self.head = Linear(D, VOCAB)
        generator = torch.Generator().manual_seed(17 + index)
        for parameter in self.parameters():
            parameter.data = torch.randn(parameter.shape, generator=generator).double() / 2

    def forward(self, **named: Tensor | None) -> tuple[Tensor, ...]:
        self.losses = {}
        made = self._first(named) if self.index == 0 else dict(named)
        x = made["x"] + made["table"]
        x = torch.tanh(self.mix(x)) * self.gain * made["mask"][..., None]
        if named.get("noise") is not None:
            x = x * (named["noise"] % 5).double()[:, None, None]
        if self.index % 2 == 1:
            x = x + made["skip"] * made["ids"][..., None]
        if self.index == 0:
            self.losses["aux"] = (x**2).mean()
        if self.is_last:
            return self._last(x + made["skip"], named)
        made["x"] = x.transpose(0, 1).contiguous().transpose(0, 1)
        return tuple(made[name] for name in makes(self.index, self.is_last))

    def _first(self, named: Mapping[str, Tensor]) -> dict[str, Tensor]:
        tokens = named["tokens"]
        x = self.embed[tokens] * named["scale"][:, None, None]
        return {
            "x": x,
            "skip": x.flip(-1)[:, ::1],
            "unused": x.sum(1),
            "ids": tokens % 3,
            "mask": tokens > 1,
            "table": torch.arange(tokens.size(1) * D).double().view(-1, D).cos(),
        }

    def _last(self, x: Tensor, named: Mapping[str, Tensor | None]) -> tuple[Tensor, ...]:
        logits = self.head(x)
        labels = named.get("labels")
        if labels is not None:
            self.losses["lm"] = F.cross_entropy(logits.flatten(0, 1), labels.flatten())
        return (logits,)


def makes(index: int, is_last: bool) -> tuple[str, ...]:
    if is_last:
        return ()
    return tuple(v.name for v in VALUES) if index == 0 else ("x",)


def stage_info(index: int, count: int) -> StageInfo:
    is_last = index == count - 1
    names = tuple(v.name for v in VALUES)
    return StageInfo(
        index=index,
        source="",
        source_name="",
        class_name="",
        inputs=(*(("tokens", "scale") if index == 0 else ()), *(("labels",) if is_last else ())),
        receives=() if index == 0 else names,
        makes=makes(index, is_last),
        # In another order than they are received in.
        sends=() if is_last else names[::-1],
        outputs=("logits",) if is_last else (),
        losses=(*(("aux",) if index == 0 else ()), *(("lm",) if is_last else ())),
        draws=index == count // 2,
        units="",
    )


def parallel_plan(schedule: str, mesh: Mapping[str, int], count: int) -> ParallelPlan:
    model = Plan("toy", "", "", "", INPUTS, ("logits",), (), 0, ("aux", "lm"), (), (), 1, 1)
    return ParallelPlan(
        model=model,
        mesh=tuple((axis, mesh.get(axis, 1)) for axis in ("pp", "dp", "cp", "ep", "tp")),
        splits=(),
        stages=tuple(stage_info(i, count) for i in range(count)),
        values=VALUES,
        parameters=(),
        schedule=schedule,
        zero=0,
    )


def build(
    rank: int, schedule: str, pp: int, chunks: int, **options: object
) -> tuple[Executor, dict[int, Stage]]:
    """The executor of a pipeline rank, and its stages."""
    count = pp * chunks
    groups = Groups.make(Mesh.of({"pp": pp}), rank)
    stages = {i: Stage(i, count) for i in range(rank, count, pp)}
    axes = Axes(groups, s=Split(LENGTH, "cp", sequence=True))
    plan = parallel_plan(schedule, {"pp": pp}, count)
    return Executor(plan, groups, stages, axes, dtype=torch.float64, **options), stages


def batch(num_microbatches: int) -> tuple[list[Part], list[Tensor], list[Shares]]:
    """Microbatches of unequal rows and lengths, one random number a row, and shares."""
    generator = torch.Generator().manual_seed(num_microbatches)
    parts, noise, shares = [], [], []
    for i in range(num_microbatches):
        rows = 1 if i == num_microbatches - 1 else 3
        shape = (rows, LENGTH - i % 3)
        parts.append(
            {
                "tokens": torch.randint(VOCAB, shape, generator=generator),
                "labels": torch.randint(VOCAB, shape, generator=generator),
                "scale": torch.rand(rows, generator=generator) + 0.5,
            }
        )
        noise.append(torch.randint(2**63 - 1, (rows,), generator=generator))
        shares.append({"": rows / 10, "lm": (i + 1) / 7})
    return parts, noise, shares


def reference(
    count: int, parts: Sequence[Part], noise: Sequence[Tensor], shares: Sequence[Shares]
) -> tuple[dict[str, float], dict[str, Tensor]]:
    """Losses and gradients by `stage.parameter`, through one connected graph."""
    stages = [Stage(i, count) for i in range(count)]
    losses: dict[str, float] = {}
    for part, numbers, share in zip(parts, noise, shares, strict=True):
        values: dict[str, Tensor] = {}
        total = torch.zeros((), dtype=torch.float64)
        for stage in stages:
            info = stage_info(stage.index, count)
            arguments = {name: part[name] for name in info.inputs}
            if "scale" in arguments:
                arguments["scale"] = arguments["scale"].double()
            arguments |= {"noise": numbers} if info.draws else {}
            results = stage(**arguments, **{name: values[name] for name in info.receives})
            values |= dict(zip(info.makes, results, strict=False))
            for name, term in stage.losses.items():
                weighted = term * share.get(name, share[""])
                total = total + weighted
                losses[name] = losses.get(name, 0.0) + weighted.item()
        total.backward()
    return losses, gradients({stage.index: stage for stage in stages})


def gradients(stages: Mapping[int, nn.Module]) -> dict[str, Tensor]:
    return {
        f"{index}.{name}": parameter.grad
        for index, stage in stages.items()
        for name, parameter in stage.named_parameters()
    }
