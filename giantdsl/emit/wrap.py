"""Lines that are too long, broken where ruff breaks them."""

from __future__ import annotations

MAX_WIDTH = 100
_OPEN, _CLOSE = "([{", ")]}"


def wrap(line: str) -> list[str]:
    """The line, or its last bracket opened over several lines.

    What is in the bracket goes on a line of its own if it fits there, else each item on one.
    """
    if len(line) <= MAX_WIDTH:
        return [line]
    found = _last_bracket(line)
    if found is None:
        return [line]
    start, end = found
    indent = " " * (len(line) - len(line.lstrip()) + 4)
    head, inside, tail = line[: start + 1], line[start + 1 : end], line[end:]
    closing = indent[4:] + tail
    if len(indent) + len(inside) <= MAX_WIDTH:
        return [head, indent + inside, closing]
    items = split_items(inside)
    if len(items) == 1:
        parts = _comprehension(inside)
        return [head, *(line for part in parts for line in wrap(indent + part)), closing]
    lines = [head]
    for item in items:
        *first, last = wrap(indent + item)
        lines += [*first, last + ","]
    return [*lines, closing]


def _comprehension(text: str) -> list[str]:
    """`x for i in y` as its two halves; anything else as it is."""
    depth = 0
    for i, char in enumerate(text):
        depth += (char in _OPEN) - (char in _CLOSE)
        if depth == 0 and text.startswith(" for ", i):
            return [text[:i], text[i + 1 :]]
    return [text]


def split_items(text: str) -> list[str]:
    """The parts between the commas that are in no bracket and no string."""
    items, depth, quoted, start = [], 0, False, 0
    for i, char in enumerate(text):
        if char == '"':
            quoted = not quoted
        elif quoted:
            continue
        elif char in _OPEN:
            depth += 1
        elif char in _CLOSE:
            depth -= 1
        elif char == "," and depth == 0:
            items.append(text[start:i].strip())
            start = i + 1
    rest = text[start:].strip()
    return [*items, rest] if rest else items


def _last_bracket(line: str) -> tuple[int, int] | None:
    """The bracket to open: a definition's parameters, else the one the line ends with."""
    stack: list[int] = []
    pairs: list[tuple[int, int]] = []
    quoted = False
    for i, char in enumerate(line):
        if char == '"':
            quoted = not quoted
        elif quoted:
            continue
        elif char in _OPEN:
            stack.append(i)
        elif char in _CLOSE and stack:
            start = stack.pop()
            if not stack:
                pairs.append((start, i))
    pairs = [pair for pair in pairs if pair[1] > pair[0] + 1]
    if line.lstrip().startswith("def ") and pairs:
        return pairs[0]
    return pairs[-1] if pairs else None
