"""Did you mean: the known name nearest to the one that was written."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The most similar of `known`, or None when nothing is close."""
    names = sorted(known)
    for candidate in names:
        if candidate.replace("_", "").lower() == name.replace("_", "").lower():
            return candidate
    close = difflib.get_close_matches(name, names, 1, 0.6)
    return close[0] if close else None


def did_you_mean(name: str, known: Iterable[str], otherwise: str | None = None) -> str | None:
    """A help line naming the nearest known name, else `otherwise`."""
    near = nearest(name, known)
    return f"did you mean `{near}`?" if near else otherwise
