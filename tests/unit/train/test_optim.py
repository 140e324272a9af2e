"""Optimizers: groups, freezing, state, and the arithmetic of Adafactor."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from giantdsl.attrs import Config
from giantdsl.errors import SettingsError
from giantdsl.plan import Plan
from giantdsl.runtime.loader import build_module
from giantdsl.train.adafactor import Adafactor
from giantdsl.train.checkpoint import restore
from giantdsl.train.optim import MasterOptimizer, build_optimizer, frozen_names
from tests.unit.train.tiny import call, tiny_plan

ADAMW = call("adamw", betas=(0.9, 0.95), eps=1e-8, decay=0.1)
ADAFACTOR = call("adafactor", power=-0.8, threshold=1.0, eps=1e-3, beta1=0.9, scale=True, decay=0.1)
NESTEROV = call("sgd", momentum=0.9, nesterov=True, decay=0.1)


def optimizer_of(
    kind: Config,
    *,
    precision: str = "float32",
    plan: Plan | None = None,
    freeze: tuple[str, ...] = (),
) -> tuple[MasterOptimizer, torch.nn.Module]:
    plan = plan or tiny_plan()
    module = build_module(plan, seed=1)
    return build_optimizer(kind, plan, module, precision=precision, freeze=freeze), module


def push(optimizer: MasterOptimizer, module: torch.nn.Module, seed: int) -> None:
    """Gradients of a loss that reaches every parameter that trains."""
    generator = torch.Generator().manual_seed(seed)
    optimizer.zero_grad()
    total = sum(
        (p.float() * torch.randn(p.shape, generator=generator)).sum()
        for p in module.parameters()
        if p.requires_grad
    )
    assert isinstance(total, torch.Tensor)
    total.backward()


def test_adamw_equals_torchs_with_decay_only_where_the_plan_says() -> None:
    optimizer, module = optimizer_of(ADAMW)
    other = build_module(tiny_plan(), seed=1)
    groups = [
        {"params": [p for p in other.parameters() if p.dim() > 1], "weight_decay": 0.1},
        {"params": [p for p in other.parameters() if p.dim() < 2], "weight_decay": 0.0},
    ]
    reference = torch.optim.AdamW(groups, lr=0.01, betas=(0.9, 0.95), fused=True)
    for step in range(3):
        push(optimizer, module, step)
        optimizer.step(0.01)
        for mine, theirs in zip(module.parameters(), other.parameters(), strict=True):
            assert mine.grad is not None
            theirs.grad = mine.grad.clone()
        reference.step()
    for mine, theirs in zip(module.parameters(), other.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_the_rate_of_a_parameter_is_multiplied() -> None:
    plan = tiny_plan()
    first, *rest = plan.parameters
    plan = replace(plan, parameters=(replace(first, lr=0.5), *rest))
    sgd = call("sgd", momentum=0.0, nesterov=False, decay=0.0)
    optimizer, module = optimizer_of(sgd, plan=plan)
    before = {n: p.detach().clone() for n, p in module.named_parameters()}
    push(optimizer, module, 0)
    gradients = optimizer.gradients()
    optimizer.step(0.2)
    after = dict(module.named_parameters())
    torch.testing.assert_close(after[first.name], before[first.name] - 0.1 * gradients[first.name])
    torch.testing.assert_close(
        after["head.weight"], before["head.weight"] - 0.2 * gradients["head.weight"]
    )


@pytest.mark.parametrize("kind", [ADAMW, ADAFACTOR, NESTEROV], ids=lambda k: k.name)
@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_state_carried_over_continues_bit_for_bit(kind: Config, precision: str) -> None:
    optimizer, module = optimizer_of(kind, precision=precision)
    resumed, twin = optimizer_of(kind, precision=precision)
    for step in range(5):
        push(optimizer, module, step)
        optimizer.step(0.01)
        if step == 1:
            restore(resumed.masters, optimizer.masters, "model")
            restore(resumed.state_tensors(), optimizer.state_tensors(), "optimizer")
            resumed.publish()
        elif step > 1:
            push(resumed, twin, step)
            resumed.step(0.01)
    for name, master in optimizer.masters.items():
        assert torch.equal(master, resumed.masters[name]), name
        assert torch.equal(twin.state_dict()[name], module.state_dict()[name])


@pytest.mark.parametrize("kind", [ADAMW, ADAFACTOR, NESTEROV], ids=lambda k: k.name)
def test_every_slot_is_there_before_the_first_step_and_named(kind: Config) -> None:
    optimizer, module = optimizer_of(kind)
    before = {n: t.shape for n, t in optimizer.state_tensors().items()}
    push(optimizer, module, 0)
    optimizer.step(0.01)
    assert {n: t.shape for n, t in optimizer.state_tensors().items()} == before
    slots = {"adamw": "exp_avg", "adafactor": "average", "sgd": "momentum_buffer"}
    assert f"{slots[kind.name]}/decoder.1.mix.weight" in before


def test_adafactor_state_of_a_matrix_is_a_row_and_a_column() -> None:
    optimizer, _ = optimizer_of(ADAFACTOR)
    state = optimizer.state_tensors()
    assert state["row/tok.weight"].shape == (11,)
    assert state["column/tok.weight"].shape == (6,)
    assert state["square/decoder.0.mix.bias"].shape == (6,)


def test_adafactor_does_the_papers_arithmetic() -> None:
    weight = torch.nn.Parameter(torch.tensor([[1.0, -2.0], [3.0, 0.5]], dtype=torch.float64))
    optimizer = Adafactor([{"params": [weight]}], lr=0.1)
    row, column = [0.0, 0.0], [0.0, 0.0]
    x = weight.detach().tolist()
    for step in (1, 2):
        g = [[0.5, -1.0], [2.0 * step, 0.25]]
        weight.grad = torch.tensor(g, dtype=torch.float64)
        optimizer.step()
        beta = 1 - step**-0.8
        for i in range(2):
            row[i] = beta * row[i] + (1 - beta) * (g[i][0] ** 2 + g[i][1] ** 2) / 2
            column[i] = beta * column[i] + (1 - beta) * (g[0][i] ** 2 + g[1][i] ** 2) / 2
        mean = sum(row) / 2
        u = [[g[i][j] / math.sqrt(row[i] * column[j] / mean) for j in range(2)] for i in range(2)]
        rms = math.sqrt(sum(v * v for r in u for v in r) / 4)
        size = max(1e-3, math.sqrt(sum(v * v for r in x for v in r) / 4))
        x = [[x[i][j] - 0.1 * size * u[i][j] / max(1.0, rms) for j in range(2)] for i in range(2)]
        torch.testing.assert_close(weight.detach(), torch.tensor(x, dtype=torch.float64))


def test_adafactor_without_scaling_takes_the_rate_as_it_is() -> None:
    weight = torch.nn.Parameter(torch.tensor([100.0]))
    optimizer = Adafactor([{"params": [weight]}], lr=0.1, scale_by_parameter=False)
    weight.grad = torch.tensor([3.0])
    optimizer.step()
    assert weight.item() == pytest.approx(99.9)


def test_freezing_goes_by_pattern_or_path_and_leaves_no_state() -> None:
    names = [p.name for p in tiny_plan().parameters]
    assert frozen_names(names, ["tok", "*.bias"]) == {
        "tok.weight",
        "decoder.0.norm.bias",
        "decoder.0.mix.bias",
        "decoder.1.norm.bias",
        "decoder.1.mix.bias",
    }
    optimizer, module = optimizer_of(ADAMW, freeze=("decoder.0",), precision="bf16")
    assert not any("decoder.0." in n for n in optimizer.state_tensors())
    before = {n: p.detach().clone() for n, p in module.named_parameters()}
    push(optimizer, module, 0)
    optimizer.step(0.1)
    moved = {n for n, p in module.named_parameters() if not torch.equal(p, before[n])}
    assert moved == {n for n in names if not n.startswith("decoder.0.")}


def test_names_match_exactly_when_freezing() -> None:
    names = ["decoder.1.q.weight", "decoder.10.q.weight"]
    assert frozen_names(names, ["decoder.1"]) == {"decoder.1.q.weight"}


def test_a_pattern_that_fits_nothing_or_everything_is_an_error() -> None:
    with pytest.raises(SettingsError, match="`tokk`, which fits no parameter; names look like"):
        frozen_names(["tok.weight"], ["tokk"])
    with pytest.raises(SettingsError, match="leaves no parameter to train"):
        frozen_names(["tok.weight"], ["*"])


def test_an_unknown_optimizer_is_an_error() -> None:
    with pytest.raises(SettingsError, match="`lion`, which is not one of"):
        optimizer_of(call("lion"))
