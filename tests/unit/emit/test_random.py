"""Initial values and dropout: functions of logical coordinates, and statistically sound."""

from __future__ import annotations

import time

import pytest
import torch
import torch.nn.functional as F

from giantdsl.runtime.prelude import random as prelude
from tests.unit.emit.made import forward, module


def test_a_slice_of_the_numbers_is_the_numbers_of_the_slice() -> None:
    index = torch.arange(10_000)
    whole = torch.special.ndtri(prelude.uniform(3, "decoder.7.q.weight", index))
    for start, stop in ((0, 1), (17, 4099), (9_999, 10_000)):
        part = torch.special.ndtri(prelude.uniform(3, "decoder.7.q.weight", index[start:stop]))
        assert torch.equal(part, whole[start:stop])
    strided = torch.special.ndtri(prelude.uniform(3, "decoder.7.q.weight", index[5::7]))
    assert torch.equal(strided, whole[5::7])


def test_numbers_depend_on_seed_name_and_element_only() -> None:
    index = torch.arange(1000)
    a = prelude.uniform(0, "a.weight", index)
    assert torch.equal(a, prelude.uniform(0, "a.weight", index))
    assert not torch.equal(a, prelude.uniform(1, "a.weight", index))
    assert not torch.equal(a, prelude.uniform(0, "b.weight", index))
    # Right values: a change of the generator is a change of every model.
    assert prelude.uniform(7, "tok.weight", torch.arange(3)).tolist() == pytest.approx(
        FIRST_THREE, abs=0
    )


FIRST_THREE = [0.1454390594095319, 0.36397419833258055, 0.9515287865606243]


def test_initial_values_are_gaussian_and_the_same_in_every_chunking() -> None:
    p = torch.empty(600, 1000)
    prelude.normal_(p, 0, "w", 0.02)
    assert abs(p.mean().item()) < 2e-4 and abs(p.std().item() / 0.02 - 1) < 5e-3
    kurtosis = ((p / 0.02) ** 4).mean().item()
    assert abs(kurtosis - 3) < 0.05
    again = torch.empty(600, 1000, dtype=torch.float64)
    prelude.normal_(again, 0, "w", 0.02)
    assert torch.equal(again.float(), p)
    q = torch.empty(1000, 100)
    prelude.uniform_(q, 0, "w", 0.5)
    assert q.abs().max() < 0.5 and abs(q.std().item() - 0.5 / 3**0.5) < 3e-3


def mask(shape: tuple[int, ...], p: float, noise: int = 5) -> torch.Tensor:
    samples = torch.arange(shape[0]) * 7919 + noise
    return prelude.keep_mask(torch.Size(shape), p, samples).double()


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_dropout_keeps_the_right_share_everywhere(p: float) -> None:
    m = mask((16, 64, 256), p)
    n = m.numel()
    assert abs(m.mean().item() - (1 - p)) < 5 * (p * (1 - p) / n) ** 0.5
    for dims in ((1, 2), (0, 2), (0, 1)):
        shares = m.mean(dims)
        bound = 6 * (p * (1 - p) / (n / shares.numel())) ** 0.5
        assert (shares - (1 - p)).abs().max() < bound


def test_dropout_masks_are_independent_across_elements_samples_and_sites() -> None:
    m = mask((8, 64, 64), 0.5) - 0.5
    bound = 6 * 0.25 / (m.numel() / 2) ** 0.5
    for shift in (1, 2, 3, 7, 8, 16, 31):
        for dim in (0, 1, 2):
            size = m.size(dim) - shift
            if size > 0:
                both = m.narrow(dim, 0, size) * m.narrow(dim, shift, size)
                assert abs(both.mean().item()) < bound * (m.numel() / both.numel()) ** 0.5
    noise = torch.arange(8)
    sites = [
        prelude.keep_mask(torch.Size((8, 4096)), 0.5, prelude.fold(noise, i)).double() - 0.5
        for i in range(6)
    ]
    for i in range(6):
        for j in range(i):
            assert abs((sites[i] * sites[j]).mean().item()) < bound


def test_dropout_scales_what_it_keeps_and_its_gradient() -> None:
    x = torch.randn(4, 100, dtype=torch.float64, requires_grad=True)
    noise = torch.arange(4)
    y = prelude.dropout(x, 0.25, noise)
    keep = prelude.keep_mask(x.shape, 0.25, noise)
    assert torch.equal(y, x * (keep.double() * (1 / 0.75)))
    (grad,) = torch.autograd.grad(y.sum(), x)
    assert torch.equal(grad, keep.double() / 0.75)
    assert prelude.dropout(x, 0.25, None) is x


BODY = """
  repeat 2 { x = x + dropout(linear(x) as fc -> [b, s, d], 0.5) }
  return x
"""


def test_a_model_drops_by_noise_only_in_training() -> None:
    model = module(forward("x[b, s, d]", "[b, s, d]", BODY))
    x = torch.randn(4, 6, 8, dtype=torch.float64)
    noise = torch.tensor([1, 2, 3, 4])
    model.train()
    a = model(x, noise=noise)
    assert torch.equal(a, model(x, noise=noise))
    assert not torch.equal(a, model(x, noise=noise + 1))
    # A sample's mask is its own: cutting the batch changes nothing.
    assert torch.equal(model(x[2:3], noise=noise[2:3]), a[2:3])
    assert not torch.equal(model(x), model(x))
    model.eval()
    assert torch.equal(model(x, noise=noise), model(x))


def test_loops_draw_anew_in_each_iteration() -> None:
    body = "  repeat 2 { x = dropout(x, 0.5) }\n  return x"
    model = module(forward("x[b, s, d]", "[b, s, d]", body)).train()
    x = torch.ones(64, 6, 8, dtype=torch.float64)
    y = model(x, noise=torch.arange(64))
    assert abs((y != 0).double().mean().item() - 0.25) < 0.04


def test_dropout_is_not_much_slower_than_torchs() -> None:
    """No more than a smoke alarm: ratios are measured in benchmarks/plain.py."""
    x = torch.randn(8, 256, 256)
    noise = torch.arange(8)

    def fastest(run: object) -> float:
        times = []
        for _ in range(7):
            start = time.perf_counter()
            run()  # type: ignore[operator]
            times.append(time.perf_counter() - start)
        return min(times)

    ours = fastest(lambda: prelude.dropout(x, 0.1, noise))
    torchs = fastest(lambda: F.dropout(x, 0.1))
    assert ours < 20 * torchs
