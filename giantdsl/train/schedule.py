"""The learning rate: a function of the step alone (invariant 11). Steps count from 1."""

from __future__ import annotations

import math
from collections.abc import Callable

from giantdsl.attrs import Config
from giantdsl.errors import SettingsError
from giantdsl.train.arguments import number


def learning_rate(schedule: Config, step: int, total_steps: int) -> float:
    """The rate of update number `step` (from 1) of `total_steps`.

    Every schedule climbs linearly to its peak over the first `warmup` steps: step s of them has
    peak * s / warmup. After that its shape holds; past `total_steps` the last value stays.
    Raises SettingsError for a schedule that does not exist.
    """
    if schedule.name not in _SHAPES:
        known = ", ".join(f"`{name}`" for name in _SHAPES)
        raise SettingsError(f"`train.lr` is `{schedule.name}`, which is not one of {known}")
    peak = number(schedule, "peak")
    warmup = number(schedule, "warmup", 0.0)
    if step < warmup:
        return peak * step / warmup
    return _SHAPES[schedule.name](schedule, peak, warmup, step, total_steps)


def _progress(step: float, start: float, end: float) -> float:
    """0 at `start`, 1 at `end` and after it."""
    return min(1.0, (step - start) / (end - start)) if end > start else 1.0


def _between(start: float, end: float, progress: float) -> float:
    """Exactly `start` at 0 and `end` at 1."""
    return start * (1.0 - progress) + end * progress


def _constant(schedule: Config, peak: float, warmup: float, step: int, total: int) -> float:
    return peak


def _linear(schedule: Config, peak: float, warmup: float, step: int, total: int) -> float:
    floor = number(schedule, "floor", 0.0)
    return _between(peak, floor, _progress(step, warmup, total))


def _cosine(schedule: Config, peak: float, warmup: float, step: int, total: int) -> float:
    """Loshchilov & Hutter 2017, one half period."""
    floor = number(schedule, "floor", 0.0)
    fall = 0.5 * (1.0 + math.cos(math.pi * _progress(step, warmup, total)))
    return _between(floor, peak, fall)


def _rsqrt(schedule: Config, peak: float, warmup: float, step: int, total: int) -> float:
    """Vaswani 2017: peak * sqrt(warmup / step), which is the peak where the warm-up ends."""
    return peak * math.sqrt(max(warmup, 1.0) / step)


def _wsd(schedule: Config, peak: float, warmup: float, step: int, total: int) -> float:
    """Warm-up, stable, decay (Hu 2024, MiniCPM): the last `decay` of all steps fall linearly."""
    floor = number(schedule, "floor", 0.0)
    start = max(warmup, total * (1.0 - number(schedule, "decay", 0.1)))
    if step <= start:
        return peak
    return _between(peak, floor, _progress(step, start, total))


_SHAPES: dict[str, Callable[[Config, float, float, int, int], float]] = {
    "constant": _constant,
    "linear": _linear,
    "cosine": _cosine,
    "rsqrt": _rsqrt,
    "wsd": _wsd,
}
