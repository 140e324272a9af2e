"""Reading the arguments of a settings call, such as `every(1000, keep=5)`."""

from __future__ import annotations

from giantdsl.attrs import Attr, Config
from giantdsl.errors import InternalError


def number(config: Config, key: str, default: float | None = None) -> float:
    """A number among the arguments. Settings are complete, so its absence is our fault."""
    value = config.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InternalError(f"`{config}` has no number `{key}`")
    return float(value)


def flag(config: Config, key: str, default: bool) -> bool:
    value = config.get(key, default)
    if not isinstance(value, bool):
        raise InternalError(f"`{key}` of `{config}` is not true or false")
    return value


def pair(config: Config, key: str, default: tuple[float, float]) -> tuple[float, float]:
    """Two numbers, `betas=[0.9, 0.95]`."""
    value: Attr = config.get(key, default)
    if not isinstance(value, tuple) or len(value) != 2:
        raise InternalError(f"`{key}` of `{config}` is not a pair")
    first, second = value
    if not isinstance(first, int | float) or not isinstance(second, int | float):
        raise InternalError(f"`{key}` of `{config}` is not a pair of numbers")
    return float(first), float(second)


def optional_count(config: Config, key: str) -> int | None:
    value = config.get(key)
    if value is None:
        return None
    return int(number(config, key))


def steps_of(config: Config) -> int:
    """`every(1000, …)`: the 1000, given by position or as `steps`."""
    if config.args and isinstance(config.args[0], int):
        return config.args[0]
    return int(number(config, "steps"))
