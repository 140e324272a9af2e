"""Attention of some queries to some keys, as a share of their attention to all.

What is computed of one block of keys can be joined with others exactly: next to its result a block
gives the logarithm of the sum that its softmax divided by (Milakov and Gimelshein 2018), and the
backward pass takes the result and the logarithm of the whole (Dao et al. 2022).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Rule:
    """How a block is attended to.

    `seen` is true where a query sees a key, `kept` where dropout keeps a weight, both broadcast to
    [b, heads, s, t]; None: everywhere. `is_causal`: query i sees keys up to i. Scores are
    multiplied by `scale`, weights that dropout keeps by `gain`.
    """

    scale: float
    is_causal: bool = False
    seen: Tensor | None = None
    kept: Tensor | None = None
    gain: float = 1.0


def attend(q: Tensor, k: Tensor, v: Tensor, rule: Rule) -> tuple[Tensor, Tensor]:
    """Result [b, heads, s, e] and logarithm of the sum [b, heads, s].

    q [b, heads, s, c], k [b, kv, t, c], v [b, kv, t, e]. A query that sees nothing gives 0 and -inf.
    """
    k, v = _repeated(q, k), _repeated(q, v)
    if _has_kernel(q, v, rule):
        o, total = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            q, k, v, 0.0, rule.is_causal, scale=rule.scale
        )
        return o.to(total.dtype), total
    scores = _scores(q, k, rule)
    total = scores.logsumexp(-1)
    return _dropped(_weights(scores, total), rule) @ v.to(scores.dtype), total


def attend_backward(
    gradient: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    o: Tensor,
    total: Tensor,
    rule: Rule,
) -> tuple[Tensor, Tensor, Tensor]:
    """What this block brings to the gradients of q, k and v, in the type of `total`.

    `gradient` and `o` [b, heads, s, e] and `total` [b, heads, s] are those of all keys.
    """
    heads_of_keys = k.size(1)
    k, v = _repeated(q, k), _repeated(q, v)
    if _has_kernel(q, v, rule):
        found = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
            gradient, q, k, v, o.to(q.dtype), total, 0.0, rule.is_causal, scale=rule.scale
        )
        of_q, of_k, of_v = (x.to(total.dtype) for x in found)
    else:
        scores = _scores(q, k, rule)
        weights = _weights(scores, total)
        gradient, q, k, v = (x.to(scores.dtype) for x in (gradient, q, k, v))
        of_v = _dropped(weights, rule).transpose(-1, -2) @ gradient
        of_weights = _dropped(gradient @ v.transpose(-1, -2), rule)
        mean = (gradient * o).sum(-1, keepdim=True)
        of_scores = weights * (of_weights - mean) * rule.scale
        of_q, of_k = of_scores @ k, of_scores.transpose(-1, -2) @ q
    return of_q, _added_up(of_k, heads_of_keys), _added_up(of_v, heads_of_keys)


def join(o: Tensor, total: Tensor, more: Tensor, more_total: Tensor) -> None:
    """Bring another block's result into `o` [b, heads, s, e] and `total` [b, heads, s], in place."""
    both = torch.logaddexp(total, more_total)
    nothing = both == -torch.inf
    old, new = (
        torch.exp(part - both).masked_fill_(nothing, 0).unsqueeze(-1)
        for part in (total, more_total)
    )
    o.mul_(old).add_(more * new)
    total.copy_(both)


def _has_kernel(q: Tensor, v: Tensor, rule: Rule) -> bool:
    """Does torch have a fused kernel that gives the logarithm of the sum?

    On the CPU, without masks: torch's context parallelism leans on the same operator.
    """
    is_plain = rule.seen is None and rule.kept is None
    return is_plain and q.device.type == "cpu" and q.size(-1) == v.size(-1)


def _scores(q: Tensor, k: Tensor, rule: Rule) -> Tensor:
    """[b, heads, s, t] in at least float32, -inf where nothing is seen."""
    wide = torch.promote_types(q.dtype, torch.float32)
    scores = q.to(wide) @ k.to(wide).transpose(-1, -2) * rule.scale
    if rule.is_causal:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
        scores.masked_fill_(later, -torch.inf)
    return scores if rule.seen is None else scores.masked_fill_(~rule.seen, -torch.inf)


def _weights(scores: Tensor, total: Tensor) -> Tensor:
    total = total.unsqueeze(-1)
    return torch.exp(scores - total).masked_fill_(total == -torch.inf, 0)


def _dropped(weights: Tensor, rule: Rule) -> Tensor:
    return weights if rule.kept is None else weights * rule.kept * rule.gain


def _repeated(q: Tensor, k: Tensor) -> Tensor:
    """A key head for each query head."""
    return k if k.size(1) == q.size(1) else k.repeat_interleave(q.size(1) // k.size(1), 1)


def _added_up(gradient: Tensor, heads: int) -> Tensor:
    """The gradient of `heads` key heads from that of their copies."""
    if gradient.size(1) == heads:
        return gradient
    return gradient.unflatten(1, (heads, gradient.size(1) // heads)).sum(2)
