"""Initial values and dropout as functions of where they are used (invariants 8 and 9)."""

import torch
from torch import Tensor


def wrapped(number: int) -> int:
    """A whole number as the signed 64-bit word with the same low bits."""
    return (number + 2**63) % 2**64 - 2**63


def mix(x: Tensor) -> Tensor:
    """Scramble int64 words: SplitMix64's finaliser (Steele, Lea & Flood 2014)."""
    x = (x ^ ((x >> 30) & 0x3FFFFFFFF)) * -0x40A7B892E31B1A47
    x = (x ^ ((x >> 27) & 0x1FFFFFFFFF)) * -0x6B2FB644ECCEEE15
    return x ^ ((x >> 31) & 0x1FFFFFFFF)


def uniform(seed: int, name: str, index: Tensor) -> Tensor:
    """Numbers in (0, 1), float64, for the elements `index` of parameter `name`."""
    key = 0xCBF29CE484222325
    for byte in f"{seed}:{name}".encode():
        key = ((key ^ byte) * 0x100000001B3) % 2**64
    bits = mix(mix(index * -0x61C8864680B583EB + wrapped(key)))
    return (((bits >> 11) & 0x1FFFFFFFFFFFFF).double() + 0.5) * 2.0**-53


@torch.no_grad()
def fill(p: Tensor, seed: int, name: str, kind: str, scale: float) -> None:
    """Initial values as a function of (seed, name, element), the same on every device.

    They are made on the CPU in float64, a part at a time; ndtri is the inverse of the normal
    distribution function.
    """
    part = 1 << 18
    flat = torch.empty(p.numel(), dtype=p.dtype, device="cpu")
    for start in range(0, p.numel(), part):
        stop = min(start + part, p.numel())
        u = uniform(seed, name, torch.arange(start, stop, device="cpu"))
        drawn = torch.special.ndtri(u) if kind == "normal" else 2 * u - 1
        flat[start:stop] = drawn * scale
    p.copy_(flat.view(p.shape))


def normal_(p: Tensor, seed: int, name: str, std: float) -> None:
    """Gaussian values with standard deviation `std`."""
    fill(p, seed, name, "normal", std)


def uniform_(p: Tensor, seed: int, name: str, bound: float) -> None:
    """Uniform values in (-bound, bound)."""
    fill(p, seed, name, "uniform", bound)


def fold(noise: Tensor | None, number: int) -> Tensor | None:
    """The noise of one part of the model: other random numbers [b] for each `number`."""
    return None if noise is None else mix(noise + wrapped(number * 0x9E3779B97F4A7C15))


def keep_mask(shape: torch.Size, p: float, noise: Tensor) -> Tensor:
    """True with probability 1 - p, by each sample's noise [b] and the element's place in it."""
    index = torch.arange(shape[1:].numel(), device=noise.device)
    x = mix(noise)[:, None] + index * -0x61C8864680B583EB
    x ^= x >> 32
    x *= -0x40A7B892E31B1A47
    return (x >= round((p - 0.5) * 2.0**64)).view(shape)


def dropout(x: Tensor, p: float, noise: Tensor | None) -> Tensor:
    """Zero a share p of x [b, ..] and scale up the rest; nothing without noise."""
    if noise is None:
        return x
    return x * keep_mask(x.shape, p, noise).to(x.dtype).mul_(1 / (1 - p))
