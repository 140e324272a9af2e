"""Attention with masks, and its dropout."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from giantdsl.runtime.prelude.random import dropout


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
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
    """Attention of q [b, s, heads, c] to k [b, t, kv, c] and v [b, t, kv, e]: [b, s, heads, e].

    A key may be seen where `mask` is true (broadcast to [b, heads, s, t]), where `keep` [b, t] is
    true, within `window` positions, and in the same `document` [b, t]. `bias` is added to the
    scores. A query that sees no key gives 0.
    """
    q, k, v = q.transpose(-3, -2), k.transpose(-3, -2), v.transpose(-3, -2)
    plain = all(m is None for m in (window, mask, bias, keep, document, noise))
    if plain:
        gqa = q.size(-3) != k.size(-3)
        o = F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale, enable_gqa=gqa)
        return o.transpose(-3, -2)
    bias = None if bias is None else bias.to(q.dtype)
    seen = visible(q, k, causal, window, mask, keep, document)
    if q.size(-3) != k.size(-3):
        groups = q.size(-3) // k.size(-3)
        k, v = k.repeat_interleave(groups, -3), v.repeat_interleave(groups, -3)
    if noise is not None:
        return attention_with_dropout(q, k, v, scale, seen, bias, dropout_p, noise)
    if bias is not None and seen is not None:
        bias = torch.where(seen, bias, -math.inf)
    o = F.scaled_dot_product_attention(
        q, k, v, attn_mask=seen if bias is None else bias, scale=scale
    )
    return o.transpose(-3, -2)


def visible(
    q: Tensor,
    k: Tensor,
    causal: bool,
    window: int | None,
    mask: Tensor | None,
    keep: Tensor | None,
    document: Tensor | None,
) -> Tensor | None:
    """Which keys a query may see, as one mask that broadcasts to [b, heads, s, t]; None: all."""
    seen = mask
    if causal or window is not None:
        at = torch.arange(q.size(-2), device=q.device)[:, None]
        key = torch.arange(k.size(-2), device=q.device)
        near = key <= at if causal else key < k.size(-2)
        if window is not None:
            near = near & (key > at - window)
        seen = near if seen is None else seen & near
    if keep is not None:
        keep = keep[..., None, None, :]
        seen = keep if seen is None else seen & keep
    if document is not None:
        same = document[..., None, :, None] == document[..., None, None, :]
        seen = same if seen is None else seen & same
    return seen


def attention_with_dropout(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float | None,
    seen: Tensor | None,
    bias: Tensor | None,
    p: float,
    noise: Tensor,
) -> Tensor:
    """The same written out, with a share p of the attention weights [b, heads, s, t] dropped."""
    scores = q @ k.transpose(-1, -2) * (q.size(-1) ** -0.5 if scale is None else scale)
    if bias is not None:
        scores = scores + bias
    if seen is None:
        weights = scores.softmax(-1)
    else:
        weights = scores.masked_fill(~seen, torch.finfo(scores.dtype).min).softmax(-1)
        weights = weights * seen.any(-1, keepdim=True)
    return (dropout(weights, p, noise) @ v).transpose(-3, -2)
