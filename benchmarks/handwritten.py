"""GPT-2 as an expert writes it by hand: fused qkv, SDPA, tied head. The peer of `plain.py`."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Attention(nn.Module):
    def __init__(self, dim: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        b, s, d = x.shape
        qkv = self.qkv(x).view(b, s, 3, self.heads, d // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        p = self.dropout if self.training else 0.0
        o = F.scaled_dot_product_attention(q, k, v, dropout_p=p, is_causal=True)
        return self.out(o.transpose(1, 2).reshape(b, s, d))


class Decoder(nn.Module):
    def __init__(self, dim: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim)
        self.attention = Attention(dim, heads, dropout)
        self.norm2 = nn.LayerNorm(dim)
        self.up = nn.Linear(dim, 4 * dim)
        self.down = nn.Linear(4 * dim, dim)
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.drop(self.attention(self.norm1(x)))
        h = F.gelu(self.up(self.norm2(x)), approximate="tanh")
        return x + self.drop(self.down(h))


class GPT(nn.Module):
    """tokens [b, s] and labels [b, s] to the mean token loss."""

    def __init__(
        self, vocab: int, seq: int, dim: int, heads: int, layers: int, dropout: float
    ) -> None:
        super().__init__()
        self.tok = nn.Embedding(vocab, dim)
        self.pos = nn.Embedding(seq, dim)
        self.drop = nn.Dropout(dropout)
        self.decoder = nn.ModuleList(Decoder(dim, heads, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(dim)

    def forward(self, tokens: Tensor, labels: Tensor) -> Tensor:
        at = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.drop(self.tok(tokens) + self.pos(at))
        for layer in self.decoder:
            x = layer(x)
        logits = F.linear(self.norm(x), self.tok.weight)
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100)


def copy_weights(hand: GPT, emitted: dict[str, Tensor]) -> None:
    """Give the hand-written model the emitted module's parameters, by logical name."""
    state: dict[str, Tensor] = {}
    for name, value in emitted.items():
        head, _, leaf = name.rpartition(".")
        if head.endswith(("attention.k", "attention.v")):
            continue
        if head.endswith("attention.q"):
            base = head.removesuffix("q")
            parts = [emitted[f"{base}{part}.{leaf}"] for part in "qkv"]
            state[f"{base}qkv.{leaf}"] = torch.cat(parts)
        else:
            state[name.replace(".mlp.", ".")] = value
    hand.load_state_dict(state)
