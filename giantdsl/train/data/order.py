"""The order of samples: a permutation that is computed, never stored."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from giantdsl.runtime.rng import fold

Ints = npt.NDArray[np.int64]
_ROUNDS = 4
_WORD = (1 << 64) - 1


def permuted(positions: Ints, size: int, *words: int) -> Ints:
    """Where each position 0 <= i < size of an order goes: a bijection chosen by `words`.

    A Feistel network over the next power of four, walked until it lands inside (Black &
    Rogaway 2002): constant memory whatever the size.
    """
    half = max(1, (max(size - 1, 1).bit_length() + 1) // 2)
    keys = [np.uint64(fold(*words, i)) for i in range(_ROUNDS)]
    result = np.asarray(positions, dtype=np.int64).copy()
    todo = np.arange(result.size)
    while todo.size:
        result.flat[todo] = _feistel(result.flat[todo], half, keys)
        todo = todo[result.flat[todo] >= size]
    return result


def _feistel(x: Ints, half: int, keys: list[np.uint64]) -> Ints:
    mask = np.uint64((1 << half) - 1)
    shift = np.uint64(half)
    word = x.astype(np.uint64)
    left, right = word >> shift, word & mask
    for key in keys:
        left, right = right, left ^ (_scrambled(right ^ key) & mask)
    return ((left << shift) | right).astype(np.int64)


def _scrambled(x: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    with np.errstate(over="ignore"):
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def uniforms(count: int, *words: int) -> npt.NDArray[np.float64]:
    """`count` numbers in [0, 1) that follow from `words`."""
    start = np.uint64(fold(*words))
    with np.errstate(over="ignore"):
        word = np.arange(count, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) + start
    return (_scrambled(_scrambled(word)) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def generator(*words: int) -> np.random.Generator:
    """A numpy generator whose numbers follow from `words`."""
    return np.random.Generator(np.random.PCG64(fold(*words) & _WORD))
