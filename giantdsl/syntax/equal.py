"""Trees without their places."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from giantdsl.syntax.ast import Node


def ast_equal(left: Any, right: Any) -> bool:
    """The same tree, wherever it stands: spans and sources are not compared."""
    if isinstance(left, tuple) and isinstance(right, tuple):
        return len(left) == len(right) and all(map(ast_equal, left, right))
    if isinstance(left, Node) and type(left) is type(right):
        return all(
            ast_equal(getattr(left, field.name), getattr(right, field.name))
            for field in fields(left)
            if field.name not in ("span", "path_span", "source")
        )
    return type(left) is type(right) and bool(left == right)
