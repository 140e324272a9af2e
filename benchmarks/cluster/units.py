"""Bandwidths and times as people write them."""

from __future__ import annotations

_BITS = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}
_SECONDS = (("us", 1e-6), ("ms", 1e-3), ("s", 1.0))


def parse_bandwidth(text: str | float | None) -> float | None:
    """'100mbit' is 1e8 bits/s; None, '', '0' and 'none' are None: not shaped."""
    if text is None or isinstance(text, (int, float)):
        return text or None
    word = text.strip().lower()
    if word in ("", "0", "none", "unshaped"):
        return None
    for unit, factor in _BITS.items():
        if word.endswith(unit):
            return float(word.removesuffix(unit)) * factor
    raise ValueError(f"bandwidth {text!r}: use a number and kbit, mbit or gbit, or 'none'")


def parse_time(text: str | float | None) -> float:
    """'0.1ms' is 1e-4 s; also us, s, and a bare number of seconds."""
    if text is None or isinstance(text, (int, float)):
        return float(text or 0)
    word = text.strip().lower()
    for unit, factor in _SECONDS:
        if word.endswith(unit):
            return float(word.removesuffix(unit)) * factor
    return float(word)
