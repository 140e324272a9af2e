"""The specs that ship: their published sizes, and that each one runs and learns when small."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest
import torch
from torch import Tensor

from giantdsl.driver import compile_spec, make_plan
from giantdsl.ir.parameters import count_parameters
from giantdsl.plan import InputInfo
from giantdsl.resources import folder, model_path
from giantdsl.runtime.loader import build_module
from giantdsl.source import SourceFile

OPS = Path(__file__).parents[1] / "ops"

# Equal to `transformers` at the published configurations, to the last parameter.
COUNTS = {
    "gpt2": 124_439_808,
    "llama3": 8_030_261_248,
    "bert": 110_106_428,
    "t5": 60_506_624,
    "mixtral": 46_702_792_704,
    "vit": 86_567_656,
    "alternating": 2_614_341_888,
    "custom": 66_746_368,
}


@pytest.mark.parametrize("name", list(COUNTS))
def test_published_number_of_parameters(name: str) -> None:
    spec = compile_spec(model_path(name))
    assert count_parameters(spec.program) == COUNTS[name]
    assert spec.warnings == ()
    comments = re.match(r"(#.*\n)*", model_path(name).read_text())
    assert comments is not None and f"{COUNTS[name]:,}" in comments[0]


def random_input(info: InputInfo, generator: torch.Generator) -> Tensor:
    shape = [2 if size is None else size for size in info.sizes]
    if info.num_classes is not None:
        return torch.randint(0, info.num_classes, shape, generator=generator)
    if info.dtype == "bool":
        return torch.ones(shape, dtype=torch.bool)
    return torch.rand(shape, generator=generator)


@pytest.mark.parametrize("name", list(COUNTS))
def test_tiny_profile_learns_one_batch(name: str) -> None:
    spec = compile_spec(model_path(name), profiles=["tiny"])
    plan = make_plan(spec)
    assert plan.num_parameters < 1_000_000
    assert spec.settings.train is not None and spec.settings.train.steps == 20
    module = build_module(plan, search_path=OPS)
    generator = torch.Generator().manual_seed(0)
    inputs = {info.name: random_input(info, generator) for info in plan.inputs}
    optimizer = torch.optim.AdamW(module.parameters(), lr=3e-3)
    losses = []
    draws = "noise" in inspect.signature(module.forward).parameters
    for step in range(8):
        noise = {"noise": torch.tensor([step, step + 100])} if draws else {}
        module(**inputs, **noise)
        assert set(module.losses) == set(plan.losses)
        loss = torch.stack(list(module.losses.values())).sum()
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        assert all(p.grad is not None for p in module.parameters())
        optimizer.step()
    assert losses[-1] < losses[0] - 0.1, losses


STD = """
model std
import {names} from "std/blocks"
dims {{
  b: batch;  s: seq = 8;  slot: ragged
  d = 16;  heads = 4;  kv = 2;  hd = 4;  ff = 32;  rank = 2;  experts = 4
}}
forward(x[b, s, d]) -> [b, s, d] {{
  y = {call}
  return y
}}
"""


def std_block(names: str, call: str) -> torch.nn.Module:
    source = SourceFile("std.giant", STD.format(names=names, call=call))
    module = build_module(make_plan(compile_spec(source)), dtype=torch.float64)
    return module.eval()


def of(module: torch.nn.Module, name: str) -> Tensor:
    return module.get_parameter(name).detach()


X = torch.randn(2, 8, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(5))


def test_library_feed_forward_layers() -> None:
    m = std_block("swiglu", "swiglu(x, ff=ff)")
    gate, up, down = (of(m, f"swiglu.{n}.weight") for n in ("gate", "up", "down"))
    wanted = (torch.nn.functional.silu(X @ gate.T) * (X @ up.T)) @ down.T
    torch.testing.assert_close(m(X), wanted)
    m = std_block("gelu_mlp", "gelu_mlp(x, ff=ff)")
    up, down = (of(m, f"gelu_mlp.{n}.weight") for n in ("up", "down"))
    torch.testing.assert_close(m(X), torch.nn.functional.gelu(X @ up.T) @ down.T)


def test_library_lora_starts_at_zero_and_is_scaled() -> None:
    m = std_block("lora", "lora(x, e=d, rank=rank, alpha=6)")
    assert torch.equal(m(X), torch.zeros_like(X))
    a, b = of(m, "lora.a.weight"), m.get_parameter("lora.b.weight")
    with torch.no_grad():
        b.normal_(generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(m(X), 3.0 * (X @ a.T @ b.detach().T))


def test_library_attention_window_counts_itself() -> None:
    """With a window of 1 each position sees itself only, so the result is out(v)."""
    call = "attention(x, heads=heads, kv=kv, hd=hd, window={window})"
    m = std_block("attention", call.format(window=1))
    v = (X @ of(m, "attention.v.weight").T).view(2, 8, 2, 4).repeat_interleave(2, dim=2)
    wanted = v.reshape(2, 8, 16) @ of(m, "attention.out.weight").T
    torch.testing.assert_close(m(X), wanted)
    whole = std_block("attention", call.format(window="none"))
    torch.testing.assert_close(whole(X)[:, :1], wanted[:, :1])
    assert not torch.allclose(whole(X)[:, 1:], wanted[:, 1:])


def test_library_experts() -> None:
    """Each token is the sum of its two best experts, weighed by their renormalised chances."""
    m = std_block("moe", "moe(x, ff=ff, experts=experts, slot=slot)")
    chances = (X @ of(m, "moe.router.weight").T).softmax(-1)
    best, chosen = chances.topk(2, dim=-1)
    best = best / best.sum(-1, keepdim=True)
    gate, up, down = (of(m, f"moe.expert.{n}.weight") for n in ("gate", "up", "down"))
    hidden = torch.nn.functional.silu(torch.einsum("bsd,efd->bsef", X, gate))
    hidden = hidden * torch.einsum("bsd,efd->bsef", X, up)
    each = torch.einsum("bsef,edf->bsed", hidden, down)
    picked = each.gather(2, chosen[..., None].expand(-1, -1, -1, 16))
    torch.testing.assert_close(m(X), (picked * best[..., None]).sum(2))
    assert list(m.losses) == ["balance"] or m.losses == {}


def test_every_library_block_has_a_comment() -> None:
    text = (folder("grammar") / "std" / "blocks.giant").read_text()
    blocks = re.findall(r"(?m)^(.*)\nblock (\w+)<", text)
    assert {name for _, name in blocks} == {"attention", "swiglu", "gelu_mlp", "lora", "moe"}
    assert all(line.startswith("# ") for line, _ in blocks)
