"""Every operation, emitted and run, against the formula written out with einsum (float64)."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.unit.emit.made import forward, module


def randn(*shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, dtype=torch.float64, generator=generator)


def close(a: Tensor, b: Tensor) -> None:
    assert a.shape == b.shape, (a.shape, b.shape)
    assert torch.allclose(a, b, rtol=1e-10, atol=1e-12), (a - b).abs().max()


X = randn(3, 6, 8)
Y = randn(3, 6, 8)
UNARY = {
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "relu": F.relu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "exp": torch.exp,
}


@pytest.mark.parametrize("name", UNARY)
def test_unary(name: str) -> None:
    model = module(forward("x[b, s, d]", "[b, s, d]", f"  return {name}(x)"))
    close(model(X), UNARY[name](X))


ARITHMETIC = {
    "x + y": X + Y,
    "x - y * 2": X - Y * 2,
    "(x - y) * (x + y)": (X - Y) * (X + Y),
    "x - (y - 1)": X - (Y - 1),
    "-(x + y)": -(X + Y),
    "x / (y / 2) / 4": X / (Y / 2) / 4,
    "1 / (x * x + 1)": 1 / (X * X + 1),
    "3 - x": 3 - X,
    "(x + 1) ** 2": (X + 1) ** 2,
    "x ** 2 * 0.5": X**2 * 0.5,
    "softcap(x, 2.0)": 2.0 * torch.tanh(X / 2.0),
    "x + mean(x, over=d)": None,
}


@pytest.mark.parametrize("text", [k for k, v in ARITHMETIC.items() if v is not None])
def test_arithmetic(text: str) -> None:
    model = module(forward("x[b, s, d], y[b, s, d]", "[b, s, d]", f"  return {text}"))
    close(model(X, Y), ARITHMETIC[text])


def test_broadcasting_goes_by_name_in_any_order() -> None:
    text = "  return x * m + v * z"
    model = module(forward("x[b, s, d], m[b, s], v[d], z[d, b]", "[b, s, d]", text))
    m, v, z = randn(3, 6), randn(8), randn(8, 3)
    want = torch.einsum("bsd,bs->bsd", X, m) + torch.einsum("d,db->bd", v, z)[:, None]
    close(model(X, m, v, z), want)


def test_reductions_softmax_and_where() -> None:
    body = """
  p = softmax(x, over=s)
  a = mean(p, over=s) + sum(x, over=s) - max(x, over=s)
  return where(c, a, a * 2), mean(x, over=[s, d])
"""
    model = module(forward("x[b, s, d], c[b, d]: bool", "[b, d], [b]", body))
    c = randn(3, 8) > 0
    a = X.softmax(1).mean(1) + X.sum(1) - X.amax(1)
    one, two = model(X, c)
    close(one, torch.where(c, a, a * 2))
    close(two, X.mean((1, 2)))


def test_linear_over_several_axes_square_and_fused() -> None:
    body = """
  q, k = linear(x, bias=true) -> [b, s, heads, hd], [b, s, ff]
  back = linear(q) as back -> [b, s, d]
  square = linear(back, bias=true) -> [b, s, d]
  return q, k, square, linear(q) as pool -> [b, s, hd]
"""
    model = module(
        forward("x[b, s, d]", "[b, s, heads, hd], [b, s, ff], [b, s, d], [b, s, hd]", body)
    )
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(randn(*p.shape))
    state = dict(model.named_parameters())
    assert {n: tuple(p.shape) for n, p in state.items()} == {
        "q.weight": (8, 8), "q.bias": (8,), "k.weight": (12, 8), "k.bias": (12,),
        "back.weight": (8, 8), "square.weight": (8, 8), "square.bias": (8,), "pool.weight": (1, 4),
    }  # fmt: skip
    q, k, square, pool = model(X)
    w = state["q.weight"].view(4, 2, 8)
    close(q, torch.einsum("bsd,hcd->bshc", X, w) + state["q.bias"].view(4, 2))
    close(k, X @ state["k.weight"].T + state["k.bias"])
    back = torch.einsum("bshc,dhc->bsd", q, state["back.weight"].view(8, 4, 2))
    close(square, back @ state["square.weight"].T + state["square.bias"])
    close(pool, torch.einsum("bshc,h->bsc", q, state["pool.weight"][0]))


def test_embedding_ties_and_logical_vocabulary() -> None:
    body = """
  x = embedding(tokens) as tok -> [b, s, d]
  x = x + embedding(positions(s)) as pos -> [s, d]
  return linear(layernorm(x) as norm, tie=tok, bias=true) as head -> [b, s, vocab]
"""
    model = module(forward("tokens[b, s]: vocab", "[b, s, vocab]", body))
    state = dict(model.named_parameters())
    assert list(state) == ["tok.weight", "pos.weight", "norm.weight", "norm.bias", "head.bias"]
    assert state["tok.weight"].shape == (11, 8)
    tokens = torch.randint(11, (3, 5))
    x = F.layer_norm(state["tok.weight"][tokens] + state["pos.weight"][:5], (8,))
    close(model(tokens), x @ state["tok.weight"].T)


def test_norms_over_an_inner_axis() -> None:
    model = module(forward("x[b, ff, s, d]", "[b, ff, s, d]", "  return rmsnorm(x, over=ff) as n"))
    x = randn(2, 12, 3, 8)
    close(model(x), x * torch.rsqrt(x.square().mean(1, keepdim=True) + 1e-6))


def test_shapes() -> None:
    body = """
  z = rearrange(x) -> [b, t, ny, c]
  first = x[t=0]
  last = x[t=-1]
  cls = param(init=normal(1.0)) -> [one, h]
  y = concat(cls, x, along=u)
  back = y[u=1:]
  return z, first, last, y, back, expand(first) -> [b, t, h]
"""
    result = "[b, t, ny, c], [b, h], [b, h], [b, u, h], [b, t, h], [b, t, h]"
    model = module(forward("x[b, t, h]", result, body))
    x = randn(3, 4, 4)
    z, first, last, y, back, again = model(x)
    close(z, x.view(3, 4, 2, 2))
    close(first, x[:, 0])
    close(last, x[:, -1])
    close(y, torch.cat([model.cls.expand(3, 1, 4), x], 1))
    close(back, x)
    close(again, x[:, :1].expand(3, 4, 4))


def attention(q: Tensor, k: Tensor, v: Tensor, seen: Tensor, bias: Tensor | float = 0.0) -> Tensor:
    """[b, s, heads, c] the long way, each query head with its key head."""
    groups = q.size(2) // k.size(2)
    k, v = k.repeat_interleave(groups, 2), v.repeat_interleave(groups, 2)
    scores = torch.einsum("bshc,bthc->bhst", q, k) * q.size(-1) ** -0.5 + bias
    scores = scores.masked_fill(~seen, -math.inf)
    weights = torch.nan_to_num(scores.softmax(-1))
    return torch.einsum("bhst,bthc->bshc", weights, v)


Q, K, V = randn(3, 6, 4, 2), randn(3, 6, 2, 2), randn(3, 6, 2, 2) + 1
AT = torch.arange(6)
CAUSAL = AT[None] <= AT[:, None]
KEEP = torch.tensor([[True] * 6, [True] * 2 + [False] * 4, [False] * 6])
DOCUMENT = torch.tensor([[0, 0, 0, 1, 1, 1], [0, 1, 2, 3, 4, 5], [0, 0, 0, 0, 0, 0]])
QKV = "q[b, s, heads, hd], k[b, s, kv, hd], v[b, s, kv, hd]"
MASKS = {
    "causal=true": CAUSAL,
    "": torch.ones(6, 6, dtype=torch.bool),
    "causal=true, window=2": CAUSAL & (AT[None] > AT[:, None] - 2),
    "window=3": AT[None] > AT[:, None] - 3,
    "keep=keep": KEEP[:, None, None],
    "causal=true, keep=keep": CAUSAL & KEEP[:, None, None],
    "causal=true, document=doc": CAUSAL & (DOCUMENT[:, None, :, None] == DOCUMENT[:, None, None]),
}


@pytest.mark.parametrize("options", MASKS)
def test_attention_masks(options: str) -> None:
    comma = ", " if options else ""
    body = f"  return sdpa(q, k, v{comma}{options})"
    params = f"{QKV}, keep[b, s]: bool, doc[b, s]: int"
    model = module(forward(params, "[b, s, heads, hd]", body))
    got = model(Q, K, V, KEEP, DOCUMENT)
    close(got, attention(Q, K, V, MASKS[options]))


def test_attention_bias_mask_and_cross_lengths() -> None:
    body = "  return sdpa(q, k, v, bias=bias, mask=m)"
    params = (
        "q[b, s, heads, hd], k[b, t, kv, hd], v[b, t, kv, hd], bias[heads, s, t], m[s, t]: bool"
    )
    model = module(forward(params, "[b, s, heads, hd]", body))
    bias, m = randn(4, 6, 4), randn(6, 4) > -1
    close(model(Q, K[:, :4], V[:, :4], bias, m), attention(Q, K[:, :4], V[:, :4], m, bias))


def test_alibi_and_relative_bias() -> None:
    body = """
  a = alibi() -> [heads, s, s']
  r = relative_bias(ff, two_way=true, far=16) -> [heads, s, s']
  return a, r + 0 * x
"""
    model = module(forward("x[heads, s, s']", "[heads, s, s'], [heads, s, s']", body))
    a, r = model(randn(4, 6, 6))
    close(a[1].double(), -(2.0**-4) * (AT[:, None] - AT).abs().double())
    assert torch.equal(r[:, 0, 1], model.r.weight[7]) and torch.equal(r[:, 2, 1], model.r.weight[1])


def test_rope_turns_by_position_and_a_given_position() -> None:
    body = "  return rope(x, theta=100), rope(x, theta=100, position=at)"
    model = module(
        forward("x[b, s, heads, d], at[b, s]: s", "[b, s, heads, d], [b, s, heads, d]", body)
    )
    x = randn(3, 6, 4, 8)
    at = torch.tensor([[0, 1, 2, 3, 4, 5], [0, 0, 1, 1, 2, 2], [5, 4, 3, 2, 1, 0]])
    plain, placed = model(x, at)
    frequency = 100.0 ** (-torch.arange(0, 8, 2).double() / 8)

    def turned(position: Tensor) -> Tensor:
        angle = position.double()[..., None] * frequency
        pairs = torch.view_as_complex(torch.stack([x[..., :4], x[..., 4:]], -1))
        turn = torch.polar(torch.ones_like(angle), angle)[:, :, None]
        done = torch.view_as_real(pairs * turn)
        return torch.cat([done[..., 0], done[..., 1]], -1)

    assert torch.allclose(plain, turned(AT.expand(3, 6)), atol=1e-6)
    assert torch.allclose(placed, turned(at), atol=1e-6)


MOE = """
block swiglu(x[experts, slot, d]) -> [experts, slot, d] {
  gate, up = linear(x, bias=true) -> [experts, slot, ff], [experts, slot, ff]
  return linear(silu(gate) * up) as down -> [experts, slot, d]
}
"""


def moe(capacity: str = "") -> str:
    body = f"""
  probs = softmax(linear(x) as router -> [b, s, experts], over=experts)
  route = topk(probs, 2, over=experts)
  y = swiglu(dispatch(x, route{capacity}) -> [experts, slot, d], per=experts) as expert
  loss balance = load_balance(probs, route)
  return combine(y, route), probs
"""
    return forward("x[b, s, d]", "[b, s, d], [b, s, experts]", body, MOE)


def expert_output(model: torch.nn.Module, x: Tensor, e: int) -> Tensor:
    p = dict(model.named_parameters())
    gate = x @ p["expert.gate.weight"][e].T + p["expert.gate.bias"][e]
    up = x @ p["expert.up.weight"][e].T + p["expert.up.bias"][e]
    return (F.silu(gate) * up) @ p["expert.down.weight"][e].T


def test_dropless_experts_equal_the_dense_sum_and_so_do_gradients() -> None:
    model = module(moe())
    x = X.clone().requires_grad_()
    y, probs = model(x)
    weight, index = probs.topk(2, -1)
    weight = weight / weight.sum(-1, keepdim=True)
    want = torch.zeros_like(x)
    for e in range(3):
        share = (weight * (index == e)).sum(-1, keepdim=True)
        want = want + share * expert_output(model, x, e)
    close(y, want)
    names = [n for n, _ in model.named_parameters()]
    got = torch.autograd.grad(y.square().sum(), list(model.parameters()), retain_graph=True)
    ref = torch.autograd.grad(want.square().sum(), list(model.parameters()))
    for name, a, b in zip(names, got, ref, strict=True):
        assert torch.allclose(a, b, rtol=1e-9, atol=1e-12), name


def test_capacity_drops_per_sequence_first_choices_first() -> None:
    model = module(moe(", capacity=0.5"))
    y, probs = model(X)
    weight, index = probs.topk(2, -1)
    weight = weight / weight.sum(-1, keepdim=True)
    each = math.ceil(0.5 * 2 * 6 / 3)
    want = torch.zeros_like(X)
    for b in range(3):
        room = [each] * 3
        for choice in range(2):
            for s in range(6):
                e = int(index[b, s, choice])
                if room[e]:
                    room[e] -= 1
                    want[b, s] += weight[b, s, choice] * expert_output(model, X[b, s], e)
    close(y, want)
    one, _ = model(X[1:2])
    close(one, y[1:2])


def test_load_balance_does_not_depend_on_how_the_batch_is_cut() -> None:
    model = module(moe())
    model(X)
    whole = model.losses["balance"]
    parts = []
    for i in range(3):
        model(X[i : i + 1])
        parts.append(model.losses["balance"])
    close(torch.stack(parts).mean(), whole)


def test_losses_guards_and_counts() -> None:
    body = """
  logits = linear(x) -> [b, s, vocab]
  loss lm = cross_entropy(logits, labels, ignore=-1, smooth=0.1)
  loss z = 0.5 * z_loss(logits)
  loss weighted = cross_entropy(logits, labels, ignore=-1, weight=w)
  loss fit = mse(x, target)
  return logits
"""
    params = "x[b, s, d], labels[b, s]: vocab, w[b, s], target[b, s, d]"
    model = module(forward(params, "[b, s, vocab]", body))
    labels = torch.randint(11, (3, 6))
    labels[0, :4] = -1
    w = randn(3, 6).abs()
    logits = model(X)
    assert set(model.losses) == {"z"} and logits.shape == (3, 6, 11)
    model(X, labels, w, Y)
    losses = model.losses
    flat, y = logits.flatten(0, 1), labels.flatten()
    close(losses["lm"], F.cross_entropy(flat, y, ignore_index=-1, label_smoothing=0.1))
    close(losses["z"], 0.5 * flat.logsumexp(-1).square().mean())
    each = F.cross_entropy(flat, y, ignore_index=-1, reduction="none")
    close(losses["weighted"], (each * w.flatten()).sum() / (w.flatten() * (y != -1)).sum())
    close(losses["fit"], (X - Y).square().mean())
    counts = model.loss_counts(labels, w)
    assert int(counts["lm"]) == 14 and set(counts) == {"lm", "weighted"}
    close(counts["weighted"], (w * (labels != -1)).sum())
    model(X, torch.full((3, 6), -1), w, Y)
    assert model.losses["lm"].item() == 0.0 and model.losses["weighted"].item() == 0.0


def test_losses_in_blocks_and_loops_add_up() -> None:
    block = """
block layer(x[b, s, d], labels[b, s]: vocab) -> [b, s, d] {
  x = x + linear(x) as mix -> [b, s, d]
  loss deep = cross_entropy(linear(x) as head -> [b, s, vocab], labels)
  loss size = 0.1 * mse(x, x * 0)
  return x
}
"""
    body = "  repeat 3 { x = layer(x, labels) }\n  return x"
    model = module(forward("x[b, s, d], labels[b, s]: vocab", "[b, s, d]", body, block))
    labels = torch.randint(11, (3, 6))
    out = model(X, labels)
    deep, size, x = torch.zeros(()), torch.zeros(()), X
    for layer in model.layer:
        x = x + x @ layer.mix.weight.T
        logits = x @ layer.head.weight.T
        deep = deep + F.cross_entropy(logits.flatten(0, 1), labels.flatten())
        size = size + 0.1 * x.square().mean()
    close(out, x)
    close(model.losses["deep"], deep)
    close(model.losses["size"], size)
    close(model(X), x)
    assert set(model.losses) == {"size"}


def test_a_tie_into_a_block_of_the_same_iteration() -> None:
    text = forward(
        "x[b, s, d]",
        "[b, s, d]",
        """  repeat i in 3 {
    x = inner(x)
    x = x + linear(x, tie=inner.map) if i > 0 else x
  }
  return x""",
        "block inner(x[b, s, d]) -> [b, s, d] { return linear(x) as map -> [b, s, d] }",
    )
    model = module(text)
    x = torch.randn(2, 6, 8, dtype=torch.float64)
    want = x
    for i in range(3):
        weight = model.get_parameter(f"inner.{i}.map.weight")
        want = want @ weight.T
        want = want + want @ weight.T if i else want
    torch.testing.assert_close(model(x), want, rtol=1e-12, atol=1e-12)
