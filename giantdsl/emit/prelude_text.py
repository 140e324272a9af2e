"""The prelude as text: which functions a file needs, and their imports."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources

_FILES = ("random", "layers", "attention", "positions", "experts", "losses", "recompute", "cache")


@dataclass(frozen=True, slots=True)
class Part:
    """A function or class of the prelude: its text and the names it mentions."""

    text: str
    mentions: frozenset[str]


@lru_cache(maxsize=1)
def parts() -> dict[str, Part]:
    """Everything in the prelude by name, in the order of its files."""
    found: dict[str, Part] = {}
    for name in _FILES:
        text = (resources.files("giantdsl") / "runtime" / "prelude" / f"{name}.py").read_text(
            "utf-8"
        )
        lines = text.splitlines()
        for node in ast.parse(text).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                start = min([node.lineno, *(d.lineno for d in node.decorator_list)])
                mentions = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
                found[node.name] = Part(
                    "\n".join(lines[start - 1 : node.end_lineno]), frozenset(mentions)
                )
    return found


def needed(text: str) -> list[str]:
    """The names of the prelude that `text` uses, and those that they use."""
    known = parts()
    words = set(re.findall(r"\b[A-Za-z_]\w*(?=\()", text))
    stack = [name for name in known if name in words]
    found: set[str] = set()
    while stack:
        name = stack.pop()
        if name not in found:
            found.add(name)
            stack += [other for other in known[name].mentions if other in known]
    return [name for name in known if name in found]


def imports(text: str, externs: Iterable[str]) -> list[str]:
    """The import lines that `text` needs, in ruff's order."""
    standard = []
    if re.search(r"\bmath\.", text):
        standard.append("import math")
    if "lru_cache" in text:
        standard.append("from functools import lru_cache")
    if "NamedTuple" in text:
        standard.append("from typing import NamedTuple")
    plain = ["import torch"]
    if re.search(r"\bF\.", text):
        plain.append("import torch.nn.functional as F")
    named = ["from torch import Tensor, nn", *externs]
    if re.search(r"\bcheckpoint\(", text):
        named.append("from torch.utils.checkpoint import checkpoint")
    return [*standard, *([""] if standard else []), *plain, *sorted(named)]
