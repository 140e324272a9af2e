"""Random numbers that are functions of where they are used, never of when.

SplitMix64 (Steele, Lea & Flood 2014, "Fast splittable pseudorandom number generators"): integer
arithmetic modulo 2**64, so every device and every layout computes the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

_WORD = 2**64 - 1
_GAMMA = 0x9E3779B97F4A7C15
_MIX_1 = 0xBF58476D1CE4E5B9
_MIX_2 = 0x94D049BB133111EB


def mix(word: int) -> int:
    """A 64-bit word, scrambled: each bit of the result depends on all bits of `word`."""
    word = (word + _GAMMA) & _WORD
    word = ((word ^ (word >> 30)) * _MIX_1) & _WORD
    word = ((word ^ (word >> 27)) * _MIX_2) & _WORD
    return word ^ (word >> 31)


def fold(*words: int) -> int:
    """One 64-bit word from several; the order counts."""
    key = 0
    for word in words:
        key = mix(key ^ (word & _WORD))
    return key


def uniform(*words: int) -> float:
    """A number in [0, 1), 53 bits of it, from the words that say where it is used."""
    return (fold(*words) >> 11) * 2.0**-53


def sample_noise(seed: int, step: int, samples: Sequence[int]) -> Tensor:
    """One random number a sample, for dropout: int64, shape [b], on the CPU.

    `samples` are global sample indices, so the number of a sample does not depend on the
    microbatch or the rank that computes it (invariant 9).
    """
    key = fold(seed, step)
    numbers = [mix(key ^ (sample & _WORD)) for sample in samples]
    return torch.tensor([n - 2**64 if n >= 2**63 else n for n in numbers], dtype=torch.int64)
