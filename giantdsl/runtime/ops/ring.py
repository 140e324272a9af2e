"""Attention to keys that stay divided: they go round the ranks while these compute (Liu 2023).

It computes what attention to gathered keys does, and no rank ever has all of them. Under a causal
mask blocks that nobody sees are left out; in zigzag order (mesh/slices.py) every rank then has the
same work.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from giantdsl.runtime.axes import Slices
from giantdsl.runtime.groups import Group
from giantdsl.runtime.ops.block_attention import Rule, attend, attend_backward, join
from giantdsl.runtime.ops.random import keep_at
from giantdsl.runtime.ops.ring_blocks import Block, Sight, blocks


@dataclass(frozen=True, slots=True)
class Ring:
    """One attention round a ring.

    `queries` and `keys` say where those of this rank stand, `heads` which heads are here (None:
    all). `keep` and `document` [b, t] are of all keys. The rest is as in the prelude's attention.
    """

    queries: Slices
    keys: Slices
    heads: Slices | None
    scale: float
    causal: bool = False
    window: int | None = None
    keep: Tensor | None = None
    document: Tensor | None = None
    dropout_p: float = 0.0
    noise: Tensor | None = None

    def blocks(self, owner: int) -> list[Block]:
        """What has to be computed with the keys of rank `owner` of the ring."""
        runs = self.keys.runs(owner)
        return blocks(self.queries.runs(), runs, causal=self.causal, window=self.window)

    def rule(self, block: Block, owner: int, heads: int, device: torch.device) -> Rule:
        """Masks of a block by the whole positions of its queries and keys; `heads` are here."""
        is_causal = block.sight is Sight.DIAGONAL
        needs_places = self.keep is not None or self.document is not None or self.noise is not None
        if block.sight is not Sight.MASKED and not needs_places:
            return Rule(self.scale, is_causal)
        query = self.queries.index(device)[slice(*block.queries)]
        key = _index(self.keys, owner, device)[slice(*block.keys)]
        seen = None if block.sight is Sight.ALL else self._near(query, key)
        for mask in (self._kept_keys(key), self._same_document(query, key)):
            if mask is not None:
                seen = mask if seen is None else seen & mask
        kept = self._not_dropped(query, key, heads, device)
        return Rule(self.scale, False, seen, kept, 1 / (1 - self.dropout_p))

    def _near(self, query: Tensor, key: Tensor) -> Tensor:
        """[s, t]."""
        if not self.causal:
            assert self.window is not None, "only these two hide keys by their place"
            return key > query[:, None] - self.window
        near = key <= query[:, None]
        return near if self.window is None else near & (key > query[:, None] - self.window)

    def _kept_keys(self, key: Tensor) -> Tensor | None:
        return None if self.keep is None else self.keep[:, None, None, key]

    def _same_document(self, query: Tensor, key: Tensor) -> Tensor | None:
        if self.document is None:
            return None
        return self.document[:, None, query, None] == self.document[:, None, None, key]

    def _not_dropped(
        self, query: Tensor, key: Tensor, heads: int, device: torch.device
    ) -> Tensor | None:
        """Which weights [b, heads, s, t] dropout keeps, by their place among all of them."""
        if self.noise is None:
            return None
        head = (
            torch.arange(heads, device=device) if self.heads is None else self.heads.index(device)
        )
        row = head[:, None] * self.queries.whole + query
        index = row[..., None] * self.keys.whole + key
        return keep_at(index.flatten(), self.dropout_p, self.noise).view(-1, *index.shape)


def ring_attention(q: Tensor, k: Tensor, v: Tensor, ring: Ring) -> Tensor:
    """Attention of q [b, s, heads, c] to every rank's k [b, t, kv, c], v: [b, s, heads, e]."""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return _RingAttention.apply(q, k, v, ring).transpose(1, 2)


class _RingAttention(torch.autograd.Function):
    """Within it heads stand before positions: q [b, heads, s, c], k [b, kv, t, c]."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, ring: Ring) -> Tensor:
        wide = torch.promote_types(q.dtype, torch.float32)
        o = q.new_zeros((*q.shape[:-1], v.size(-1)), dtype=wide)
        total = q.new_full(q.shape[:-1], -torch.inf, dtype=wide)
        for owner, keys, values in _round(k, v, ring.keys):
            for block in ring.blocks(owner):
                here, there = slice(*block.queries), slice(*block.keys)
                rule = ring.rule(block, owner, q.size(1), q.device)
                made = attend(q[:, :, here], keys[:, :, there], values[:, :, there], rule)
                join(o[:, :, here], total[:, :, here], *made)
        ctx.ring = ring
        o = o.to(q.dtype)
        ctx.save_for_backward(q, k, v, o, total)
        return o

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (gradient,) = gradients
        q, k, v, o, total = ctx.saved_tensors
        ring: Ring = ctx.ring
        of_q = torch.zeros_like(q, dtype=total.dtype)
        home = _Rotation(ring.keys.group, tag=1)
        for owner, keys, values in _round(k, v, ring.keys):
            of_keys = torch.zeros_like(keys, dtype=total.dtype)
            of_values = torch.zeros_like(values, dtype=total.dtype)
            for block in ring.blocks(owner):
                here, there = slice(*block.queries), slice(*block.keys)
                rule = ring.rule(block, owner, q.size(1), q.device)
                found = attend_backward(
                    gradient[:, :, here],
                    q[:, :, here],
                    keys[:, :, there],
                    values[:, :, there],
                    o[:, :, here],
                    total[:, :, here],
                    rule,
                )
                of_q[:, :, here] += found[0]
                of_keys[:, :, there] += found[1]
                of_values[:, :, there] += found[2]
            packed = _packed(of_keys, of_values)
            if owner != ring.keys.group.rank:
                packed += home.take()
            # The sums follow their keys, one step behind, until they are back where these live.
            home.start(packed, _num_elements(k, v, ring.keys, _before(owner, ring.keys.group)))
        of_k, of_v = _unpacked(home.take(), k, v, k.size(2))
        return of_q.to(q.dtype), of_k.to(k.dtype), of_v.to(v.dtype), None


def _round(k: Tensor, v: Tensor, keys: Slices) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Every rank's k and v in turn, this one's first: (rank, k, v). The next ones come meanwhile."""
    group = keys.group
    rotation = _Rotation(group, tag=0)
    packed, owner = _packed(k, v), group.rank
    for step in range(group.size):
        is_last = step + 1 == group.size
        if not is_last:
            rotation.start(packed, _num_elements(k, v, keys, _before(owner, group)))
        yield owner, *_unpacked(packed, k, v, keys.sizes[owner])
        if not is_last:
            packed, owner = rotation.take(), _before(owner, group)


class _Rotation:
    """A flat tensor goes to the next rank of a group while one from the rank before comes."""

    def __init__(self, group: Group, tag: int) -> None:
        self._group, self._tag = group, tag
        self._works: list[dist.Work] = []
        self._held: tuple[Tensor, Tensor] | None = None

    def start(self, sent: Tensor, num_elements: int) -> None:
        """Send, and begin to receive `num_elements` of the same type."""
        group = self._group
        received = sent.new_empty(num_elements)
        target = group.ranks[(group.rank + 1) % group.size]
        source = group.ranks[_before(group.rank, group)]
        self._held = sent, received
        self._works = dist.batch_isend_irecv(
            [
                dist.P2POp(dist.isend, sent, target, group.process_group, self._tag),
                dist.P2POp(dist.irecv, received, source, group.process_group, self._tag),
            ]
        )

    def take(self) -> Tensor:
        """What came, once it is here and what was sent has left."""
        assert self._held is not None, "nothing was started"
        for work in self._works:
            work.wait()
        received = self._held[1]
        self._held, self._works = None, []
        return received


def _before(rank: int, group: Group) -> int:
    return (rank - 1) % group.size


def _index(keys: Slices, owner: int, device: torch.device) -> Tensor:
    return torch.cat([torch.arange(*run, device=device) for run in keys.runs(owner)])


def _num_elements(k: Tensor, v: Tensor, keys: Slices, owner: int) -> int:
    """Of a rank's k and v together: only the number of positions differs between ranks."""
    return k.size(0) * k.size(1) * keys.sizes[owner] * (k.size(3) + v.size(3))


def _packed(k: Tensor, v: Tensor) -> Tensor:
    return torch.cat([k.flatten(), v.flatten()])


def _unpacked(packed: Tensor, k: Tensor, v: Tensor, length: int) -> tuple[Tensor, Tensor]:
    """k and v of `length` positions, otherwise in the shapes of this rank's."""
    sizes = [(x.size(0), x.size(1), length, x.size(3)) for x in (k, v)]
    first, second = packed.split([torch.Size(size).numel() for size in sizes])
    return first.view(sizes[0]), second.view(sizes[1])
