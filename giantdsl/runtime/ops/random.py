"""Random numbers of divided tensors: those of the whole tensor's elements, bit for bit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from giantdsl.runtime.axes import Slices
from giantdsl.runtime.prelude import random as prelude

_PART = 1 << 18


def dropout(
    x: Tensor, p: float, noise: Tensor | None, parts: Mapping[int, Slices] | None = None
) -> Tensor:
    """Zero a share p of x [b, ..] and scale up the rest; nothing without noise.

    `parts`: the divided dimensions of x. An element's mask goes by its place in the whole tensor.
    """
    divided = {i: s for i, s in (parts or {}).items() if s.size != s.whole}
    if noise is None or not divided:
        return prelude.dropout(x, p, noise)
    index = element_index(x.shape[1:], {i - 1: s for i, s in divided.items()}, x.device)
    keep = keep_at(index.flatten(), p, noise).view(x.shape)
    return x * keep.to(x.dtype).mul_(1 / (1 - p))


def element_index(
    shape: Sequence[int], parts: Mapping[int, Slices], device: torch.device
) -> Tensor:
    """Each element's number in the whole tensor of which `shape` is a part, int64 [*shape]."""
    sizes = [parts[i].whole if i in parts else size for i, size in enumerate(shape)]
    index = torch.zeros((), dtype=torch.int64, device=device)
    for i, size in enumerate(shape):
        places = parts[i].index(device) if i in parts else torch.arange(size, device=device)
        index = index.unsqueeze(-1) * sizes[i] + places
    return index


def keep_at(index: Tensor, p: float, noise: Tensor) -> Tensor:
    """The prelude's `keep_mask` at elements `index` [n]: true with probability 1 - p, [b, n]."""
    x = prelude.mix(noise)[:, None] + index * -0x61C8864680B583EB
    x ^= x >> 32
    x *= -0x40A7B892E31B1A47
    return x >= round((p - 0.5) * 2.0**64)


def normal_(
    p: Tensor,
    seed: int,
    name: str,
    std: float,
    view: Sequence[int] = (),
    parts: Mapping[int, Slices] | None = None,
) -> None:
    """Gaussian values with standard deviation `std`: those of the whole tensor's elements.

    `view` are the sizes of the whole tensor's axes, `parts` those of them that are divided.
    """
    _fill(p, seed, name, "normal", std, view, parts or {})


def uniform_(
    p: Tensor,
    seed: int,
    name: str,
    bound: float,
    view: Sequence[int] = (),
    parts: Mapping[int, Slices] | None = None,
) -> None:
    """Uniform values in (-bound, bound), as `normal_`."""
    _fill(p, seed, name, "uniform", bound, view, parts or {})


@torch.no_grad()
def _fill(
    p: Tensor,
    seed: int,
    name: str,
    kind: str,
    scale: float,
    view: Sequence[int],
    parts: Mapping[int, Slices],
) -> None:
    if all(slices.group.size == 1 for slices in parts.values()):
        prelude.fill(p, seed, name, kind, scale)
        return
    places = [parts[i].index() if i in parts else torch.arange(size) for i, size in enumerate(view)]
    sizes = [place.numel() for place in places]
    flat = torch.empty(p.numel(), dtype=p.dtype, device="cpu")
    for start in range(0, p.numel(), _PART):
        stop = min(start + _PART, p.numel())
        index = _whole_index(torch.arange(start, stop), sizes, view, places)
        u = prelude.uniform(seed, name, index)
        drawn = torch.special.ndtri(u) if kind == "normal" else 2 * u - 1
        flat[start:stop] = drawn * scale
    p.copy_(flat.view(p.shape))


def _whole_index(
    number: Tensor, sizes: Sequence[int], view: Sequence[int], places: Sequence[Tensor]
) -> Tensor:
    """From an element's number in this rank's part to its number in the whole."""
    coordinates: list[Tensor] = []
    for size in reversed(sizes):
        coordinates.append(number % size)
        number = number // size
    index = torch.zeros_like(number)
    for at, place, whole in zip(reversed(coordinates), places, view, strict=True):
        index = index * whole + place[at]
    return index
