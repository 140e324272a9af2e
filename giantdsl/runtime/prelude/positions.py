"""What tells attention where a token is."""

import math
from functools import lru_cache

import torch
from torch import Tensor


def rope_frequency(
    size: int, theta: float, scaling: str, device: torch.device, **by: float
) -> Tensor:
    """Turns per position [size / 2], in float32.

    `scaling`: "" none; "linear" slows all by `factor`; "llama3" slows wavelengths longer than
    context / low, blending in those longer than context / high (Llama 3.1); "yarn" blends by
    the number of turns in the context, from `slow` to `fast` (Peng 2023).
    """
    exponent = torch.arange(0, size, 2, device=device, dtype=torch.float32) / size
    frequency = 1.0 / theta**exponent
    if scaling == "linear":
        return frequency / by["factor"]
    if scaling == "llama3":
        wavelength = 2 * math.pi / frequency
        blend = (by["context"] / wavelength - by["low"]) / (by["high"] - by["low"])
        mixed = (1 - blend) * frequency / by["factor"] + blend * frequency
        mixed = torch.where(wavelength < by["context"] / by["high"], frequency, mixed)
        return torch.where(wavelength > by["context"] / by["low"], frequency / by["factor"], mixed)
    if scaling == "yarn":
        turns = [by["context"] / (2 * math.pi * by[end]) for end in ("fast", "slow")]
        first, last = (size * math.log(t) / (2 * math.log(theta)) for t in turns)
        first, last = max(math.floor(first), 0), min(math.ceil(last), size - 1)
        place = torch.arange(size // 2, device=device, dtype=torch.float32)
        slowed = ((place - first) / max(last - first, 0.001)).clamp(0, 1)
        return frequency / by["factor"] * slowed + frequency * (1 - slowed)
    return frequency


@lru_cache(maxsize=16)
def rope_table(
    length: int,
    size: int,
    theta: float,
    scaling: str,
    device: torch.device,
    dtype: torch.dtype,
    by: tuple[tuple[str, float], ...],
) -> tuple[Tensor, Tensor]:
    """Cosine and sine [length, size] of each position's angles."""
    with torch.inference_mode(False), torch.no_grad():
        frequency = rope_frequency(size, theta, scaling, device, **dict(by))
        position = torch.arange(length, device=device, dtype=torch.float32)
        angle = torch.outer(position, frequency)
        angle = torch.cat([angle, angle], dim=-1)
        attenuation = 0.1 * math.log(dict(by)["factor"]) + 1.0 if scaling == "yarn" else 1.0
        return (angle.cos() * attenuation).to(dtype), (angle.sin() * attenuation).to(dtype)


def rope(
    x: Tensor,
    *,
    dim: int,
    theta: float,
    length: int = 0,
    position: Tensor | None = None,
    scaling: str = "",
    **by: float,
) -> Tensor:
    """Turn the pairs (i, i + size / 2) of the last axis by the position along `dim` (Su 2021).

    `position` [b, s], below `length`, replaces 0, 1, 2, ….
    """
    length = x.size(dim) if position is None else length
    table = rope_table(length, x.size(-1), theta, scaling, x.device, x.dtype, tuple(by.items()))
    cos, sin = table if position is None else (table[0][position], table[1][position])
    for _ in range(-dim - 2):
        cos, sin = cos.unsqueeze(-2), sin.unsqueeze(-2)
    left, right = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-right, left], dim=-1) * sin


def relative_bias(table: Tensor, s: int, t: int, two_way: bool, far: int) -> Tensor:
    """T5's bias [heads, s, t] by bucketed distance (Raffel 2020). table [buckets, heads]."""
    distance = torch.arange(t, device=table.device) - torch.arange(s, device=table.device)[:, None]
    buckets = table.size(0)
    first = torch.zeros_like(distance)
    if two_way:
        buckets //= 2
        first = (distance > 0) * buckets
        distance = distance.abs()
    else:
        distance = (-distance).clamp(min=0)
    exact = buckets // 2
    scaled = torch.log(distance.clamp(min=1).float() / exact) / math.log(far / exact)
    large = (exact + (scaled * (buckets - exact)).long()).clamp(max=buckets - 1)
    return table[first + torch.where(distance < exact, distance, large)].permute(2, 0, 1)


def alibi(heads: int, s: int, t: int, device: torch.device) -> Tensor:
    """Minus slope times distance [heads, s, t], slopes 2^(-8 i / heads) (Press 2022)."""
    slope = 2.0 ** (-8.0 * torch.arange(1, heads + 1, device=device) / heads)
    distance = (torch.arange(s, device=device)[:, None] - torch.arange(t, device=device)).abs()
    return -slope[:, None, None] * distance
