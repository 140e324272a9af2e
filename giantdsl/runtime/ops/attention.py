"""Attention of which a rank has some heads, or some queries."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from giantdsl.runtime.axes import Slices
from giantdsl.runtime.ops.random import dropout
from giantdsl.runtime.ops.ring import Ring, ring_attention
from giantdsl.runtime.prelude import attention as prelude
from giantdsl.runtime.prelude import positions


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    heads: Slices | None = None,
    kv: Slices | None = None,
    queries: Slices | None = None,
    keys: Slices | None = None,
    **given: Any,
) -> Tensor:
    """Attention of q [b, s, heads, c] to k [b, t, kv, c] and v [b, t, kv, e]: [b, s, heads, e].

    `heads` and `kv` say which of them are here; without `kv` all key heads are, and those of this
    rank's query heads are picked. `queries` says which positions q has, `keys` which k and v
    have: they then go round the ranks. Without it k and v have all, as `keep` and `document`
    always do. The rest is as in the prelude.
    """
    if heads is not None and kv is None and heads.group.size > 1:
        k, v = _picked(k, v, heads)
    if keys is not None and keys.group.size > 1:
        assert queries is not None, "where keys are divided, queries are"
        scale = given.pop("scale", None)
        scale = q.size(-1) ** -0.5 if scale is None else scale
        return ring_attention(q, k, v, Ring(queries, keys, heads, scale, **given))
    if queries is None or queries.group.size == 1:
        if given.get("noise") is None or heads is None or heads.group.size == 1:
            return prelude.attention(q, k, v, **given)
        return _written_out(q, k, v, heads, None, **given)
    return _written_out(q, k, v, heads, queries, **given)


def _picked(k: Tensor, v: Tensor, heads: Slices) -> tuple[Tensor, Tensor]:
    """The key heads that the query heads here look at, head h at h // (heads / kv).

    Copies: the backward pass then keeps these, and not all key heads.
    """
    group = heads.whole // k.size(-2)
    index = heads.index(k.device) // group
    first, last = int(index[0]), int(index[-1])
    count = last - first + 1
    # Where every key head here has as many query heads, attention shares it.
    if heads.size % count == 0 and torch.equal(
        index - first, torch.arange(heads.size, device=k.device) // (heads.size // count)
    ):
        k, v = k.narrow(-2, first, count), v.narrow(-2, first, count)
        return k.contiguous(), v.contiguous()
    return k.index_select(-2, index), v.index_select(-2, index)


def _written_out(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    heads: Slices | None,
    queries: Slices | None,
    *,
    causal: bool = False,
    window: int | None = None,
    scale: float | None = None,
    mask: Tensor | None = None,
    bias: Tensor | None = None,
    keep: Tensor | None = None,
    document: Tensor | None = None,
    dropout_p: float = 0.0,
    noise: Tensor | None = None,
) -> Tensor:
    """The prelude's attention with places in the whole sequence and the whole set of heads."""
    q, k, v = q.transpose(-3, -2), k.transpose(-3, -2), v.transpose(-3, -2)
    bias = None if bias is None else bias.to(q.dtype)
    seen = _visible(q, k, queries, causal, window, mask, keep, document)
    if q.size(-3) != k.size(-3):
        groups = q.size(-3) // k.size(-3)
        k, v = k.repeat_interleave(groups, -3), v.repeat_interleave(groups, -3)
    if noise is not None:
        return _with_dropout(q, k, v, scale, seen, bias, dropout_p, noise, heads, queries)
    if bias is not None and seen is not None:
        bias = torch.where(seen, bias, -math.inf)
    o = F.scaled_dot_product_attention(
        q, k, v, attn_mask=seen if bias is None else bias, scale=scale
    )
    return o.transpose(-3, -2)


def _visible(
    q: Tensor,
    k: Tensor,
    queries: Slices | None,
    causal: bool,
    window: int | None,
    mask: Tensor | None,
    keep: Tensor | None,
    document: Tensor | None,
) -> Tensor | None:
    """Which keys a query may see, as one mask that broadcasts to [b, heads, s, t]; None: all."""
    if queries is None:
        return prelude.visible(q, k, causal, window, mask, keep, document)
    at = queries.index(q.device)
    seen = mask
    if causal or window is not None:
        key = torch.arange(k.size(-2), device=q.device)
        near = key <= at[:, None] if causal else key < k.size(-2)
        if window is not None:
            near = near & (key > at[:, None] - window)
        seen = near if seen is None else seen & near
    if keep is not None:
        keep = keep[..., None, None, :]
        seen = keep if seen is None else seen & keep
    if document is not None:
        own = document.index_select(-1, at)
        same = own[..., None, :, None] == document[..., None, None, :]
        seen = same if seen is None else seen & same
    return seen


def _with_dropout(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float | None,
    seen: Tensor | None,
    bias: Tensor | None,
    p: float,
    noise: Tensor,
    heads: Slices | None,
    queries: Slices | None,
) -> Tensor:
    """A share p of the attention weights [b, heads, s, t] dropped, by their whole place."""
    scores = q @ k.transpose(-1, -2) * (q.size(-1) ** -0.5 if scale is None else scale)
    if bias is not None:
        scores = scores + bias
    if seen is None:
        weights = scores.softmax(-1)
    else:
        weights = scores.masked_fill(~seen, torch.finfo(scores.dtype).min).softmax(-1)
        weights = weights * seen.any(-1, keepdim=True)
    parts = {i: s for i, s in ((1, heads), (2, queries)) if s is not None}
    return (dropout(weights, p, noise, parts) @ v).transpose(-3, -2)


def relative_bias(
    table: Tensor, s: int, t: int, two_way: bool, far: int, queries: Slices | None = None
) -> Tensor:
    """T5's bias [heads, s, t] by bucketed distance; `queries`: the rows of s that are here."""
    whole = positions.relative_bias(table, s, t, two_way, far)
    if queries is None or queries.group.size == 1:
        return whole
    return whole.index_select(1, queries.index(whole.device))


def alibi(
    heads: int,
    s: int,
    t: int,
    device: torch.device,
    part: Slices | None = None,
    queries: Slices | None = None,
) -> Tensor:
    """Minus slope times distance [heads, s, t] (Press 2022); `part`: the heads that are here."""
    whole = positions.alibi(heads, s, t, device)
    if part is not None and part.group.size > 1:
        whole = whole.index_select(0, part.index(device))
    if queries is not None and queries.group.size > 1:
        whole = whole.index_select(1, queries.index(device))
    return whole
