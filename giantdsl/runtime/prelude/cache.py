"""Writing one token after the other: keys and values of those so far are kept."""

import torch
import torch.nn.functional as F
from torch import Tensor


class Cache:
    """Keys and values of the tokens so far, one pair for each attention in order of use."""

    def __init__(self, context: int) -> None:
        self.context, self.length = context, 0
        self._pairs: list[tuple[Tensor, Tensor]] = []
        self._next = 0

    def advance(self, num_tokens: int) -> None:
        """The tokens of the last call now belong to the past."""
        self.length += num_tokens
        self._next = 0

    def positions(self, num_tokens: int, device: torch.device) -> Tensor:
        """The places of the tokens of this call."""
        return torch.arange(self.length, self.length + num_tokens, device=device)

    def extend(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """k [b, n, kv, c] and v [b, n, kv, e] of this call behind those of earlier ones."""
        stop = self.length + k.size(-3)
        if self._next == len(self._pairs):
            b, _, kv, _ = k.shape
            sizes = ((b, self.context, kv, x.size(-1)) for x in (k, v))
            keys, values = (k.new_empty(size) for size in sizes)
            self._pairs.append((keys, values))
        keys, values = self._pairs[self._next]
        self._next += 1
        keys[:, self.length : stop] = k
        values[:, self.length : stop] = v
        return keys[:, :stop], values[:, :stop]


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cache: Cache,
    *,
    window: int | None = None,
    scale: float | None = None,
) -> Tensor:
    """Causal attention of q [b, n, heads, c] to the past and to k, v: [b, n, heads, e]."""
    k, v = cache.extend(k, v)
    q, k, v = q.transpose(-3, -2), k.transpose(-3, -2), v.transpose(-3, -2)
    at = cache.positions(q.size(-2), q.device)[:, None]
    key = torch.arange(k.size(-2), device=q.device)
    seen = key <= at
    if window is not None:
        seen = seen & (key > at - window)
    gqa = q.size(-3) != k.size(-3)
    o = F.scaled_dot_product_attention(q, k, v, attn_mask=seen, scale=scale, enable_gqa=gqa)
    return o.transpose(-3, -2)
