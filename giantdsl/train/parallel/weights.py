"""Masters: what the optimizer of a rank updates, and how the modules get it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import torch
from torch import Tensor, nn

from giantdsl.runtime.groups import Group, Groups
from giantdsl.train.parallel.buckets import Bucket
from giantdsl.train.parallel.held import Held, local_tensor
from giantdsl.train.parallel.sums import gather_chunks


class Weights(Protocol):
    """`masters` by name; a rank may have none of a parameter. `publish` is a collective."""

    masters: dict[str, nn.Parameter]

    def publish(self) -> None:
        """Copy the masters to the modules of all ranks that hold them."""


class WholeWeights:
    """Each rank updates all that it holds; of a parameter that FSDP divides, its rows.

    `values` are the parameters in the masters' type, where the module computes in another.
    """

    def __init__(self, held: Sequence[Held], values: Mapping[str, Tensor]) -> None:
        self._lowered = [h for h in held if h.live.dtype != h.dtype]
        self.masters = {h.name: _master(h, values) for h in held}

    @torch.no_grad()
    def publish(self) -> None:
        if self._lowered:
            masters: list[Tensor] = [self.masters[h.name] for h in self._lowered]
            torch._foreach_copy_([h.local for h in self._lowered], masters)


class DividedWeights:
    """Each rank updates its chunk of every bucket and gives it to the others (zero 1 and 2).

    The modules' parameters become views of one flat buffer for each bucket, so that a chunk
    arrives where it is used. Masters are one-dimensional pieces: of a chunk of that buffer, or
    of one in their own type where the module computes in another.
    """

    def __init__(
        self,
        held: Mapping[str, Held],
        buckets: Sequence[Bucket],
        groups: Groups,
        values: Mapping[str, Tensor],
    ) -> None:
        self.masters: dict[str, nn.Parameter] = {}
        self._chunks: list[tuple[Tensor, Tensor, Group]] = []
        for bucket in buckets:
            group = groups.over(*bucket.key.sum_over)
            flat = _flatten(bucket, [held[name] for name in bucket.names])
            self._add(bucket, flat, group, held, values)

    def _add(
        self,
        bucket: Bucket,
        flat: Tensor,
        group: Group,
        held: Mapping[str, Held],
        values: Mapping[str, Tensor],
    ) -> None:
        first = group.rank * bucket.chunk
        chunk = flat[first : first + bucket.chunk]
        dtype = held[bucket.names[0]].dtype
        if flat.dtype != dtype:
            chunk = torch.zeros_like(chunk, dtype=dtype)
        for name, offset in zip(bucket.names, bucket.offsets, strict=True):
            start, stop = bucket.span(name, group.rank)
            if stop == start:
                continue
            piece = chunk[offset + start - first : offset + stop - first]
            if flat.dtype != dtype:
                piece.copy_(values[name].reshape(-1)[start:stop])
            self.masters[name] = nn.Parameter(piece)
        self._chunks.append((flat, chunk, group))

    @torch.no_grad()
    def publish(self) -> None:
        under_way = []
        for flat, chunk, group in self._chunks:
            mine = flat[group.rank * chunk.numel() :][: chunk.numel()]
            if chunk.dtype != flat.dtype:
                mine.copy_(chunk)
            under_way.append(gather_chunks(flat, mine, group))
        for work in under_way:
            if work is not None:
                work.wait()


class JoinedWeights:
    """Several kinds together: divided ones, and those that nobody shares."""

    def __init__(self, *kinds: Weights) -> None:
        self._kinds = kinds
        self.masters = {name: p for kind in kinds for name, p in kind.masters.items()}

    def publish(self) -> None:
        for kind in self._kinds:
            kind.publish()


def _master(held: Held, values: Mapping[str, Tensor]) -> nn.Parameter:
    if held.live.dtype != held.dtype:
        return nn.Parameter(values[held.name])
    local = local_tensor(held.live.detach())
    # The optimizer sees plain tensors: fused SGD, for one, has no rule for DTensor.
    return held.live if type(held.live) is nn.Parameter else nn.Parameter(local)


def _flatten(bucket: Bucket, members: Sequence[Held]) -> Tensor:
    """Move the parameters of a bucket into one buffer, each at its offset."""
    first = members[0].live
    flat = torch.zeros(bucket.length, dtype=first.dtype, device=first.device)
    for held, offset in zip(members, bucket.offsets, strict=True):
        place = flat[offset : offset + held.live.numel()].view(held.live.shape)
        place.copy_(held.live.detach())
        held.live.data = place
    return flat
