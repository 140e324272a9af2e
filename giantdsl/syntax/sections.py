"""Where sections and statements start, judged by a few tokens alone."""

from __future__ import annotations

from collections.abc import Sequence

from giantdsl.source import SourceFile
from giantdsl.syntax.tokens import Token

# What follows the keyword where it starts a section; nothing inside braces looks like this.
_SECTIONS: dict[str, tuple[str, ...]] = {
    "MODEL": ("NAME",),
    "IMPORT": ("NAME",),
    "DIMS": ("LBRACE",),
    "DEFAULT": ("NAME", "LPAR"),
    "BLOCK": ("NAME",),
    "EXTERN": ("NAME",),
    "FORWARD": ("LPAR",),
    "PARALLEL": ("LBRACE",),
    "TRAIN": ("LBRACE",),
    "WEIGHTS": ("NAME",),
    "PROFILE": ("NAME", "LBRACE"),
}
SECTION_KINDS = frozenset(_SECTIONS)
_STATEMENT_WORDS = frozenset({"RETURN", "LOSS", "REPEAT", "STAGE", "SHARD"})


def is_section_start(tokens: Sequence[Token], i: int, source: SourceFile) -> bool:
    """Token `i`, the first of its line and in column 1, opens a section."""
    shape = _SECTIONS.get(tokens[i].kind)
    if shape is None or source.position(tokens[i].start)[1] != 1:
        return False
    return all(
        i + 1 + k < len(tokens) and tokens[i + 1 + k].kind == kind for k, kind in enumerate(shape)
    )


def is_statement_start(tokens: Sequence[Token], i: int) -> bool:
    """Token `i` starts what can only be a statement: `return …`, `x = …`, `q, k[b] = …`."""
    if tokens[i].kind in _STATEMENT_WORDS or tokens[i].kind in ("LBRACE", "RBRACE"):
        return True
    depth = 0
    for j in range(i, min(i + 60, len(tokens))):
        kind = tokens[j].kind
        if kind == "LSQB":
            depth += 1
        elif kind == "RSQB":
            depth -= 1
        elif kind == "EQUAL" and depth == 0:
            return j > i
        elif kind not in ("NAME", "COMMA", "DOT", "REST") or depth < 0:
            return False
    return False
