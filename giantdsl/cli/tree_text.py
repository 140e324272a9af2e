"""A syntax tree as indented text: one node a line, with its place in the file."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from giantdsl.source import SourceFile, Span


def format_tree(node: object) -> str:
    """`Dims 3:1`, its fields below it, nodes inside them further in."""
    return "\n".join(_lines(node, "", 0)) + "\n"


def _lines(value: object, label: str, depth: int) -> Iterator[str]:
    lead = "  " * depth + (f"{label}: " if label else "")
    if isinstance(value, tuple):
        if value:
            yield f"{lead.rstrip()}" if label else f"{lead}list"
            for item in value:
                yield from _lines(item, "", depth + 1)
        return
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        yield f"{lead}{value!r}" if isinstance(value, str) else f"{lead}{value}"
        return
    plain: list[tuple[str, object]] = []
    nested: list[tuple[str, object]] = []
    for field in dataclasses.fields(value):
        item = getattr(value, field.name)
        if isinstance(item, Span | SourceFile) or item is None:
            continue
        is_nested = isinstance(item, tuple) or dataclasses.is_dataclass(item)
        (nested if is_nested else plain).append((field.name, item))
    span = getattr(value, "span", None)
    place = f" {span.line}:{span.column}" if isinstance(span, Span) else ""
    facts = "".join(f" {name}={item!r}" for name, item in plain)
    yield f"{lead}{type(value).__name__}{place}{facts}"
    for name, item in nested:
        yield from _lines(item, name, depth + 1)
