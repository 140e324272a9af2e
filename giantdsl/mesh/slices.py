"""Where each part of a divided axis begins and ends. Pure integers."""

from __future__ import annotations

import itertools

Bounds = tuple[tuple[int, int], ...]


def even_bounds(length: int, parts: int) -> Bounds:
    """(start, stop) of each part of 0..length: contiguous, sizes differing by at most one.

    The larger parts come first.
    """
    assert length >= 0 and parts >= 1, f"{length} elements in {parts} parts"
    each, more = divmod(length, parts)
    starts = [i * each + min(i, more) for i in range(parts + 1)]
    return tuple(itertools.pairwise(starts))


def padded_bounds(length: int, padded: int, parts: int) -> Bounds:
    """`padded` elements divided evenly, then cut where the meaningful ones end.

    A last part may be shorter than the others, or empty: padding is never stored.
    """
    assert padded % parts == 0 and length <= padded, f"{length} of {padded} in {parts} parts"
    each = padded // parts
    return tuple((min(i * each, length), min((i + 1) * each, length)) for i in range(parts))


def bounds_of(length: int, padded: int, parts: int, sequence: bool) -> Bounds:
    """The bounds of an axis: sequences are divided evenly, others as `padded` elements are."""
    return even_bounds(length, parts) if sequence else padded_bounds(length, padded, parts)


def zigzag_runs(length: int, parts: int) -> tuple[Bounds, ...]:
    """The runs of positions of each part where causal attention gives every part the same work.

    The axis is cut into 2 * parts runs; part i takes run i from the front and run i from the
    back, so what its early queries do not see its late ones do.
    """
    runs = even_bounds(length, 2 * parts)
    return tuple((runs[i], runs[2 * parts - 1 - i]) for i in range(parts))


def cut_runs(runs: Bounds, start: int, stop: int) -> Bounds:
    """Elements start..stop of the runs laid end to end, as runs; empty ones are left out."""
    found: list[tuple[int, int]] = []
    passed = 0
    for first, last in runs:
        low, high = max(start - passed, 0), min(stop - passed, last - first)
        if low < high:
            found.append((first + low, first + high))
        passed += last - first
    return tuple(found)


def run_lengths(runs: Bounds) -> list[int]:
    return [stop - start for start, stop in runs]
