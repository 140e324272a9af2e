"""Operators of divided tensors against the plain ones: values, gradients, random bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from giantdsl.mesh.mesh import Mesh
from giantdsl.runtime import ops
from giantdsl.runtime.axes import Axes, Slices, Split
from giantdsl.runtime.collectives import own_part
from giantdsl.runtime.groups import Groups
from giantdsl.runtime.prelude import attention as plain_attention
from giantdsl.runtime.prelude import experts as plain_experts
from giantdsl.runtime.prelude import losses as plain_losses
from giantdsl.runtime.prelude import positions as plain_positions
from giantdsl.runtime.prelude import random as plain_random
from giantdsl.testing.ranks import RankPool

SEQUENCE, HEADS, CLASSES = 7, 6, 10


def axes_of(rank: int, world: int, mesh_axis: str) -> Axes:
    """Sequence and classes do not divide by 2 or 3: the parts differ by one, or the last is cut."""
    groups = Groups.make(Mesh.of({mesh_axis: world}), rank)
    return Axes(
        groups,
        s=Split(SEQUENCE, mesh_axis, sequence=True),
        heads=Split(HEADS, mesh_axis),
        classes=Split(CLASSES, mesh_axis, padded=12),
    )


def drawn(*shape: int, seed: int = 0) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=draw, dtype=torch.float64)


def part(x: Tensor, slices: Slices, dim: int) -> Tensor:
    return x.narrow(dim, slices.start, slices.size)


def close(a: Tensor, b: Tensor) -> None:
    torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def gradients(value: Tensor, *inputs: Tensor, given: Tensor | None = None) -> list[Tensor]:
    """Zeros where nothing flows."""
    found = torch.autograd.grad(value, inputs, given, allow_unused=True)
    return [torch.zeros_like(x) if g is None else g for x, g in zip(inputs, found, strict=True)]


# ---- conversions ---------------------------------------------------------------------------


def conversions(rank: int, world: int) -> None:
    axes = axes_of(rank, world, "tp")
    s, tp = axes.s_tp, axes.groups.tp
    x, up = drawn(2, SEQUENCE, 3), drawn(2, SEQUENCE, 3, seed=1)
    scale = 1.0 + rank
    total = sum(1.0 + r for r in range(world))
    own = part(x, s, 1).clone().requires_grad_()
    whole = x.clone().requires_grad_()

    # Each rank uses the gathered tensor its own way: gradients are partial.
    made = ops.all_gather(own, s, dim=1)
    close(made, x)
    close(*gradients(made * scale, own, given=up), part(up, s, 1) * total)
    # All do the same with it: gradients are whole.
    close(*gradients(ops.gather_whole(own, s, dim=1), own, given=up), part(up, s, 1))
    close(*gradients(ops.copy_to(whole, tp) * scale, whole, given=up), up * total)
    made = ops.reduce_from(whole * scale, tp)
    close(made, x * total)
    close(*gradients(made, whole, given=up), up * scale)
    made = ops.reduce_scatter(whole * scale, s, dim=1)
    close(made, part(x, s, 1) * total)
    close(*gradients(made, whole, given=part(up, s, 1)), up * scale)
    made = ops.scatter(whole, s, dim=1)
    close(made, part(x, s, 1))
    close(*gradients(made, whole, given=part(up, s, 1)), up)
    made = ops.local(whole, s, dim=1)
    (found,) = gradients(made, whole, given=part(up, s, 1))
    close(part(found, s, 1), part(up, s, 1))
    close(found.abs().sum(), part(up, s, 1).abs().sum())
    # Flags and numbers are gathered, too.
    flags = x[0] > 0
    assert ops.gather_whole(part(flags, s, 0), s, dim=0).equal(flags)
    numbers = torch.arange(SEQUENCE)
    assert ops.all_gather(part(numbers, s, 0), s, dim=0).equal(numbers)


def narrow_sums(rank: int, world: int) -> list[float]:
    """1 + 256 x 2^-9 adds up to 1.5 (invariant 22): bfloat16 alone would stay at 1."""
    tp = Groups.make(Mesh.of({"tp": world}), rank).tp
    x = torch.tensor([1.0 if rank == 0 else 2.0**-9], dtype=torch.bfloat16)
    total = ops.reduce_from(x, tp)
    return [float(total), float(total.dtype.itemsize)]


# ---- losses --------------------------------------------------------------------------------


def divided_classes(rank: int, world: int, smooth: float, weighted: bool) -> None:
    classes = axes_of(rank, world, "tp").classes_tp
    logits, labels = drawn(2, 4, CLASSES).requires_grad_(), torch.arange(8).view(2, 4)
    labels = labels.masked_fill(labels == 3, -100)
    weight = drawn(2, 4, seed=2).abs() if weighted else None
    wanted = plain_losses.cross_entropy(logits, labels, ignore=-100, smooth=smooth, weight=weight)
    mine = part(logits.detach(), classes, 2).clone().requires_grad_()
    found = ops.cross_entropy(
        mine, labels, ignore=-100, smooth=smooth, weight=weight, classes=classes
    )
    close(found, wanted)
    close(*gradients(found, mine), part(gradients(wanted, logits)[0], classes, 2))
    wanted, found = plain_losses.z_loss(logits), ops.z_loss(mine, classes=classes)
    close(found, wanted)
    close(*gradients(found, mine), part(gradients(wanted, logits)[0], classes, 2))


def divided_rows(rank: int, world: int) -> None:
    axes = axes_of(rank, world, "cp")
    s, over = axes.s_cp, (axes.groups.cp,)
    logits = drawn(2, SEQUENCE, CLASSES).requires_grad_()
    labels = torch.arange(2 * SEQUENCE).view(2, SEQUENCE) % CLASSES
    labels[0, :5] = -100
    mine = part(logits.detach(), s, 1).clone().requires_grad_()
    other = drawn(2, SEQUENCE, CLASSES, seed=3)
    pairs: list[tuple[Callable[..., Tensor], Callable[..., Tensor]]] = [
        (
            lambda x: plain_losses.cross_entropy(x, labels, ignore=-100),
            lambda x: ops.cross_entropy(x, part(labels, s, 1), ignore=-100, over=over),
        ),
        (plain_losses.z_loss, lambda x: ops.z_loss(x, over=over)),
        (
            lambda x: torch.nn.functional.mse_loss(x, other),
            lambda x: ops.mse(x, part(other, s, 1), over=over),
        ),
    ]
    for plain, divided in pairs:
        wanted, found = plain(logits), divided(mine)
        close(found, wanted)
        close(*gradients(found, mine), part(gradients(wanted, logits)[0], s, 1))


def nothing_valid(rank: int, world: int) -> list[float]:
    classes = axes_of(rank, world, "tp").classes_tp
    mine = drawn(3, classes.size).requires_grad_()
    labels = torch.full((3,), -100)
    loss = ops.cross_entropy(mine, labels, ignore=-100, classes=classes)
    return [float(loss), float(gradients(loss, mine)[0].abs().sum())]


# ---- layers and attention ------------------------------------------------------------------


def lookups(rank: int, world: int) -> None:
    axes = axes_of(rank, world, "tp")
    rows, tp = axes.classes_tp, axes.groups.tp
    table = drawn(CLASSES, 3)
    index = torch.arange(CLASSES).view(2, 5)
    found = ops.reduce_from(ops.embedding(index, part(table, rows, 0), rows), tp)
    close(found, table[index])
    x = drawn(2, SEQUENCE, 3)
    for at in (0, 3, SEQUENCE - 1, -2):
        picked = ops.pick(part(x, axes.s_tp, 1), axes.s_tp, dim=1, at=at)
        close(ops.reduce_from(picked, tp), x[:, at])


def attentions(rank: int, world: int, mesh_axis: str, kv: int) -> None:
    axes = axes_of(rank, world, mesh_axis)
    q, k, v = drawn(2, SEQUENCE, HEADS, 4), drawn(2, SEQUENCE, kv, 4), drawn(2, SEQUENCE, kv, 4)
    noise = torch.tensor([11, 12])
    keep = torch.arange(SEQUENCE) < torch.tensor([[5], [7]])
    document = torch.arange(SEQUENCE).expand(2, -1) // 3
    bias = drawn(HEADS, SEQUENCE, SEQUENCE, seed=5)
    cases: list[dict[str, Any]] = [
        {"causal": True},
        {"causal": True, "window": 3},
        {"keep": keep, "scale": 0.3},
        {"causal": True, "document": document},
        {"bias": bias, "keep": keep},
        {"causal": True, "dropout_p": 0.4, "noise": noise},
    ]
    for given in cases:
        wanted = plain_attention.attention(q, k, v, **given)
        if mesh_axis == "cp":
            s = axes.s_cp
            own = {**given, **({"bias": part(bias, s, 1)} if "bias" in given else {})}
            found = ops.attention(part(q, s, 1), k, v, queries=s, **own)
            close(found, part(wanted, s, 1))
        else:
            heads = axes.heads_tp
            own = {**given, **({"bias": part(bias, heads, 0)} if "bias" in given else {})}
            found = ops.attention(part(q, heads, 2), k, v, heads=heads, **own)
            close(found, part(wanted, heads, 2))


def kept_key_heads(rank: int, world: int) -> list[int]:
    """Sizes of the tensors of key heads that a backward pass keeps on this rank."""
    heads = axes_of(rank, world, "tp").heads_tp
    q, k, v = drawn(2, 5, HEADS, 4), drawn(2, 5, 2, 4), drawn(2, 5, 2, 4)
    for x in (q, k, v):
        x.requires_grad_()
    kept: list[int] = []

    def keep(x: Tensor) -> Tensor:
        kept.append(x.untyped_storage().nbytes() // x.itemsize)
        return x

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        ops.attention(part(q, heads, 2), k * 1, v * 1, heads=heads, causal=True)
    return [size for size in kept if size == k.numel()]


def rings(rank: int, world: int, zigzag: bool, kv: int, length: int) -> None:
    """Keys that go round against all keys at once: results and gradients (laws 1 and 9)."""
    groups = Groups.make(Mesh.of({"cp": world}), rank)
    s = Axes(groups, s=Split(length, "cp", sequence=True, zigzag=zigzag)).s_cp
    q, k, v = (drawn(2, length, heads, 4, seed=heads).requires_grad_() for heads in (HEADS, kv, kv))
    given = drawn(2, length, HEADS, 4, seed=9)
    keep = torch.arange(length) < torch.tensor([[5], [length]])
    document = torch.arange(length).expand(2, -1) // 3
    cases: list[dict[str, Any]] = [
        {},
        {"causal": True},
        {"causal": True, "window": 3},
        {"window": 2},
        {"keep": keep, "scale": 0.3},
        {"causal": True, "document": document},
        {"causal": True, "keep": keep, "dropout_p": 0.4, "noise": torch.tensor([11, 12])},
    ]
    for case in cases:
        wanted = plain_attention.attention(q, k, v, **case)
        own = [own_part(x, s, 1) for x in (q, k, v)]
        found = ops.attention(*own, queries=s, keys=s, **case)
        close(found, own_part(wanted, s, 1))
        of_wanted = gradients(wanted, q, k, v, given=given)
        of_found = gradients(found, *own, given=own_part(given, s, 1))
        for a, b in zip(of_found, of_wanted, strict=True):
            close(a, own_part(b, s, 1))


def ring_of_queries_on_tp(rank: int, world: int) -> None:
    """Queries are divided over cp and then tp, their keys over cp only."""
    groups = Groups.make(Mesh.of({"cp": 2, "tp": world // 2}), rank)
    axes = Axes(groups, s=Split(13, "cp", "tp", sequence=True, zigzag=True))
    keys, queries = axes.s_cp, axes.s_tp
    q, k, v = drawn(2, 13, 2, 4), drawn(2, 13, 2, 4, seed=1), drawn(2, 13, 2, 6, seed=2)
    wanted = plain_attention.attention(q, k, v, causal=True).index_select(1, queries.index())
    own = [own_part(x, keys, 1) for x in (k, v)]
    mine = q.index_select(1, queries.index())
    close(ops.attention(mine, *own, causal=True, queries=queries, keys=keys), wanted)


def zigzag_conversions(rank: int, world: int) -> None:
    groups = Groups.make(Mesh.of({"cp": world}), rank)
    for length in (1, 7, 12):
        s = Axes(groups, s=Split(length, "cp", sequence=True, zigzag=True)).s_cp
        x = drawn(2, length, 3).requires_grad_()
        own = x.detach().index_select(1, s.index()).requires_grad_()
        given = drawn(2, length, 3, seed=4)
        close(ops.local(x, s, 1), own)
        close(ops.scatter(x, s, 1), own)
        close(ops.gather_whole(own, s, 1), x)
        close(ops.all_gather(own, s, 1), x)
        close(ops.reduce_scatter(x, s, 1), own * world)
        (found,) = gradients(ops.all_gather(own, s, 1), own, given=given)
        close(found, given.index_select(1, s.index()) * world)


def positions(rank: int, world: int) -> None:
    axes = axes_of(rank, world, "cp")
    s = axes.s_cp
    x = drawn(2, SEQUENCE, 3, 4)
    wanted = plain_positions.rope(x, dim=-3, theta=100.0)
    found = ops.rope(part(x, s, 1), dim=-3, theta=100.0, position=s.index(), length=s.whole)
    close(found, part(wanted, s, 1))
    table = drawn(8, HEADS)
    whole = plain_positions.relative_bias(table, SEQUENCE, 5, True, 16)
    close(ops.relative_bias(table, SEQUENCE, 5, True, 16, queries=s), part(whole, s, 1))
    cpu = torch.device("cpu")
    whole = plain_positions.alibi(HEADS, SEQUENCE, 5, cpu)
    close(ops.alibi(HEADS, SEQUENCE, 5, cpu, queries=s), part(whole, s, 1))


# ---- random numbers ------------------------------------------------------------------------


def random_bits(rank: int, world: int) -> None:
    """Initial values and dropout of a part are those of the whole, bit for bit (laws 8 and 9)."""
    axes = axes_of(rank, world, "tp")
    heads, s = axes.heads_tp, axes.s_tp
    whole, mine = torch.empty(5, HEADS * 3), torch.empty(5, heads.size * 3)
    for plain, divided in (
        (plain_random.normal_, ops.normal_),
        (plain_random.uniform_, ops.uniform_),
    ):
        plain(whole, 3, "a.weight", 0.5)
        divided(mine, 3, "a.weight", 0.5, (5, HEADS, 3), {1: heads})
        assert mine.view(5, -1, 3).equal(part(whole.view(5, HEADS, 3), heads, 1))
    x, noise = drawn(2, SEQUENCE, HEADS), torch.tensor([5, 6])
    wanted = part(plain_random.dropout(x, 0.3, noise), s, 1)
    assert ops.dropout(part(x, s, 1), 0.3, noise, {1: s}).equal(wanted)
    wanted = part(plain_random.dropout(x, 0.3, noise), heads, 2)
    assert ops.dropout(part(x, heads, 2), 0.3, noise, {2: heads}).equal(wanted)


# ---- experts -------------------------------------------------------------------------------


def experts(rank: int, world: int, capacity: float | None) -> None:
    """Every rank has two sequences and two experts: tokens go there and come back."""
    groups = Groups.make(Mesh.of({"ep": world}), rank)
    ep = groups.ep
    num_experts, rows = 2 * world, 2 * world
    x = drawn(rows, 5, 3).requires_grad_()
    probs = drawn(rows, 5, num_experts, seed=1).softmax(-1).requires_grad_()
    factor = (1.0 + torch.arange(num_experts)).view(-1, 1, 1)

    def one(x: Tensor, probs: Tensor) -> Tensor:
        route = plain_experts.topk(probs, 2, renormalize=True)
        y = plain_experts.dispatch(x, route, capacity).square() * factor
        return plain_experts.combine(y, route, capacity)

    wanted = one(x, probs)
    up = drawn(*wanted.shape, seed=2)
    own_x, own_probs = (
        t.detach()[2 * rank : 2 * rank + 2].clone().requires_grad_() for t in (x, probs)
    )
    route = ops.topk(own_probs, 2, renormalize=True)
    sent = ops.dispatch(own_x, route, capacity, ep=ep)
    assert sent.size(0) == 2
    y = sent.square() * factor[2 * rank : 2 * rank + 2]
    found = ops.combine(y, route, capacity, ep=ep)
    rows_here = slice(2 * rank, 2 * rank + 2)
    close(found, wanted[rows_here])
    mine = gradients(found, own_x, own_probs, given=up[rows_here])
    for a, b in zip(mine, gradients(wanted, x, probs, given=up), strict=True):
        close(a, b[rows_here])


def balance(rank: int, world: int) -> None:
    axes = axes_of(rank, world, "cp")
    s = axes.s_cp
    probs = drawn(2, SEQUENCE, 4).softmax(-1).requires_grad_()
    wanted = plain_experts.load_balance(probs, plain_experts.topk(probs, 2, renormalize=False))
    mine = part(probs.detach(), s, 1).clone().requires_grad_()
    route = ops.topk(mine, 2, renormalize=False)
    found = ops.load_balance(mine, route, over=s)
    close(found, wanted)
    close(*gradients(found, mine), part(gradients(wanted, probs)[0], s, 1))


ALL: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "conversions": (conversions, ()),
    "classes": (divided_classes, (0.0, False)),
    "classes smoothed": (divided_classes, (0.1, False)),
    "classes weighted": (divided_classes, (0.0, True)),
    "rows": (divided_rows, ()),
    "lookups": (lookups, ()),
    "heads": (attentions, ("tp", 6)),
    "heads, one key head": (attentions, ("tp", 1)),
    "heads, three key heads": (attentions, ("tp", 3)),
    "queries": (attentions, ("cp", 3)),
    "ring": (rings, (False, HEADS, 9)),
    "ring in zigzag": (rings, (True, HEADS, 13)),
    "ring of few key heads": (rings, (True, 2, 12)),
    "ring with empty runs": (rings, (True, 3, 3)),
    "zigzag": (zigzag_conversions, ()),
    "positions": (positions, ()),
    "random bits": (random_bits, ()),
    "experts": (experts, (None,)),
    "experts with a capacity": (experts, (1.0,)),
    "balance": (balance, ()),
}


def test_a_rank_keeps_only_the_key_heads_it_needs(ranks: RankPool) -> None:
    """Two key heads, three query heads of one of them on each rank."""
    assert ranks.run(kept_key_heads, ranks=2) == [[], []]


@pytest.mark.parametrize("world", [2, 4])
def test_ring_of_queries_that_tp_divides_too(world: int, ranks: RankPool) -> None:
    ranks.run(ring_of_queries_on_tp, ranks=world)


@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize("name", ALL)
def test_divided_is_the_same_as_whole(name: str, world: int, ranks: RankPool) -> None:
    check, arguments = ALL[name]
    ranks.run(check, *arguments, ranks=world)


def test_16_bit_floats_add_up_in_float32(ranks: RankPool) -> None:
    # 1 + 4 * 2^-9; one at a time, bfloat16 would stay at 1.
    assert ranks.run(narrow_sums, ranks=5) == [[1.0078125, 2.0]] * 5


def test_no_valid_label_is_loss_0_without_nan(ranks: RankPool) -> None:
    assert ranks.run(nothing_valid, ranks=2) == [[0.0, 0.0]] * 2
