"""Names are rebound as in Python: what a spec computes is what the same lines compute there."""

from __future__ import annotations

import random
import re

import pytest
import torch
from torch import Tensor

from .made import emitted, forward, module

X = torch.arange(2.0 * 6 * 8, dtype=torch.float64).reshape(2, 6, 8)
Y = X.flip(0) + 1


def statements(rng: random.Random, depth: int = 0) -> list[str]:
    """Assignments among a few names that all have the same axes, and loops of them."""
    lines: list[str] = []
    for _ in range(rng.randrange(1, 6)):
        target, left, right = (rng.choice("xyzw") for _ in range(3))
        choice = rng.randrange(8)
        if choice == 0 and depth < 2:
            lines.append(f"repeat {rng.randrange(1, 4)} {{")
            lines += [f"  {line}" for line in statements(rng, depth + 1)]
            lines.append("}")
        elif choice < 4:
            lines.append(f"{target} = {left}")
        elif choice < 6:
            lines.append(f"{target} = {left} * {rng.choice(['0.5', '2', '3'])}")
        else:
            lines.append(f"{target} = {left} + {right}")
    return lines


def in_python(lines: list[str]) -> Tensor:
    """What the lines compute where `repeat` is a `for`."""
    text = "\n".join(line for line in lines if line.strip() != "}")
    text = re.sub(r"repeat (\d+) \{", r"for _ in range(\1):", text)
    names: dict[str, Tensor] = {"x": X, "y": Y, "z": X * 5, "w": Y * 7}
    exec(text, {"range": range}, names)
    return names["x"] + names["y"] * 11 + names["z"] * 13 + names["w"] * 17


SUM = "x + y * 11 + z * 13 + w * 17"


@pytest.mark.parametrize("start", range(0, 120, 20))
def test_random_lines(start: int) -> None:
    for seed in range(start, start + 20):
        lines = statements(random.Random(seed))
        body = "\n".join(f"  {line}" for line in ["z = x * 5", "w = y * 7", *lines])
        if seed % 2:
            text = forward("x[b, s, d], y[b, s, d]", "[b, s, d]", f"{body}\n  return {SUM}")
        else:
            block = f"block f(x[b, s, d], y[b, s, d]) -> [b, s, d] {{\n{body}\n  return {SUM}\n}}"
            text = forward("x[b, s, d], y[b, s, d]", "[b, s, d]", "  return f(x, y)", block)
        found = module(text)(X, Y)
        assert torch.equal(found, in_python(lines)), f"seed {seed}\n{text}"


def source(body: str, blocks: str = "") -> str:
    text = forward("x[b, s, d]", "[b, s, d]", body, blocks)
    return emitted(text).source


def test_the_second_name_is_the_variable() -> None:
    lines = source("  x = gelu(x)\n  skip = x\n  x = relu(x)\n  return x + skip")
    assert "skip = F.gelu(x)" in lines
    assert "x = F.relu(skip)" in lines
    assert "return x + skip" in lines


def test_a_parameter_is_copied() -> None:
    assert "        skip = x\n" in source("  skip = x\n  x = x * 2\n  return x + skip")


def test_nothing_is_copied_without_need() -> None:
    assert "skip" not in source("  skip = x\n  y = x * 2\n  return y + skip")


def test_an_order_of_ones_own_does_not_take_the_name() -> None:
    model = module(forward("x[b, s, d]", "[b, s, d]", "  y[d, b, s] = x\n  return x * 2 + y"))
    assert torch.equal(model(X), X * 3)


def test_a_value_behind_a_condition_spares_the_others() -> None:
    body = """
  g = x * 2
  kept = g
  g = g * 3
  loss size = mse(g, target)
  return kept"""
    text = forward("x[b, s, d], target[b, s, d]", "[b, s, d]", body)
    model = module(text)
    assert torch.equal(model(X), X * 2)
    assert torch.equal(model(X, target=X), X * 2)
    assert torch.equal(model.losses["size"], (X * 6 - X).square().mean())  # type: ignore[index, operator]
