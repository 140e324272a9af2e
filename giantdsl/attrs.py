"""Compile-time values: numbers, words, lists and calls. Imports nothing of ours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Union


@dataclass(frozen=True, slots=True)
class Config:
    """A call used as a value: `llama3(factor=8)`, `adamw(decay=0.1)`."""

    name: str
    args: tuple[Attr, ...] = ()
    kwargs: tuple[tuple[str, Attr], ...] = ()

    def get(self, key: str, default: Attr = None) -> Attr:
        return dict(self.kwargs).get(key, default)

    def __str__(self) -> str:
        if not self.args and not self.kwargs:
            return self.name
        parts = [format_attr(a) for a in self.args]
        parts += [f"{k}={format_attr(v)}" for k, v in self.kwargs]
        return f"{self.name}({', '.join(parts)})"


Attr = Union[None, bool, int, float, str, tuple["Attr", ...], Config]  # noqa: UP007 (recursive)


def format_attr(value: Attr) -> str:
    """An attribute as the language writes it."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return "[" + ", ".join(format_attr(v) for v in value) + "]"
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    return str(value)
