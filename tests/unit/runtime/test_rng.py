"""Counter-based random numbers."""

from __future__ import annotations

import torch

from giantdsl.runtime.rng import fold, mix, sample_noise, uniform


def test_mix_is_splitmix64() -> None:
    # The first outputs of the reference generator seeded with 0 (xoshiro.di.unimi.it/splitmix64.c).
    assert mix(0) == 0xE220A8397B1DCDAF
    assert mix(0x9E3779B97F4A7C15) == 0x6E789E6AA1B965F4


def test_fold_depends_on_every_word_and_on_their_order() -> None:
    keys = {fold(1, 2, 3), fold(1, 3, 2), fold(3, 2, 1), fold(1, 2), fold(1, 2, 4), fold(-1, 2, 3)}
    assert len(keys) == 6


def test_uniform_fills_the_unit_interval() -> None:
    numbers = [uniform(5, i) for i in range(2000)]
    assert all(0.0 <= n < 1.0 for n in numbers)
    assert abs(sum(numbers) / 2000 - 0.5) < 0.02
    assert len(set(numbers)) == 2000


def test_noise_of_a_sample_does_not_depend_on_the_others() -> None:
    whole = sample_noise(7, 3, range(100, 108))
    assert whole.dtype == torch.int64
    assert whole.shape == (8,)
    assert torch.equal(sample_noise(7, 3, [105, 101]), whole[[5, 1]])


def test_noise_changes_with_seed_step_and_sample() -> None:
    base = sample_noise(7, 3, range(64))
    assert not (base == sample_noise(8, 3, range(64))).any()
    assert not (base == sample_noise(7, 4, range(64))).any()
    assert base.unique().numel() == 64


def test_noise_has_these_bits_forever() -> None:
    # A checkpoint of an older version must go on with the same dropout.
    assert sample_noise(0, 1, [0, 1]).tolist() == [
        4964578127960768432,
        5067554077270220563,
    ]
