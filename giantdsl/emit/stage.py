"""A stage as a Python file of its own, written against `giantdsl.runtime.ops`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from giantdsl.emit.classes import ClassWriter
from giantdsl.emit.held import LATER, Held
from giantdsl.emit.module import EmittedModule, extern_imports, written
from giantdsl.emit.prelude_text import imports, parts
from giantdsl.emit.slices import CONVERSIONS
from giantdsl.ir.nodes import Program
from giantdsl.plan import AxisSplit

_OPS = (*CONVERSIONS, "Axes", "Groups", LATER, "Split", "embedding", "mse", "pick")
"""What the runtime has besides the functions that plain files carry along."""


def emit_stage(
    program: Program, held: Held, *, title: str, recompute: Sequence[str] = (), source_name: str
) -> EmittedModule:
    """The file of one stage; `program` has its conversions written out.

    Its class takes an `Axes`, which the file's function `axes` makes of this rank's groups.
    `title` says in a line what the stage holds. The same program always gives the same bytes.
    """
    names = frozenset((*parts(), *_OPS))
    reserved = names | frozenset(program.externs)
    shown = source_name.replace("\\", "/").split("/")[-1]
    writer = ClassWriter(program, reserved, frozenset(recompute), shown, held, is_stage=True)
    writer.run()
    axes = _axes_function(held.splits)
    body = "\n".join(writer.lines)
    ours = "\n".join(_import_lines(_used("\n".join([*axes, body]), names)))
    found = imports(body, [*extern_imports(program), ours])
    if not re.search(r"\btorch\.", body):
        found.remove("import torch")
    head = [f'"""{title}', "", f"Made by giantdsl from {shown}; edit that.", '"""', ""]
    return written([*head, *"\n".join(found).split("\n"), "", "", *axes], writer)


def _axes_function(splits: Mapping[str, AxisSplit]) -> list[str]:
    lines = [
        "def axes(groups: Groups) -> Axes:",
        '    """The axes that are divided, and over which ranks."""',
    ]
    if not splits:
        return [*lines, "    return Axes(groups)"]
    lines += ["    return Axes(", "        groups,"]
    for name, split in splits.items():
        words = [str(split.size), *(f'"{m}"' for m in split.mesh)]
        if split.padded != split.size:
            words.append(f"padded={split.padded}")
        if split.sequence:
            words.append("sequence=True")
        if split.zigzag:
            words.append("zigzag=True")
        lines.append(f"        {name}=Split({', '.join(words)}),")
    return [*lines, "    )"]


def _used(text: str, names: frozenset[str]) -> list[str]:
    """The names that a file has to import, in ruff's order: classes first."""
    words = set(re.findall(r"(?<![\w.])[A-Za-z_]\w*(?=\()", text)) & names
    words |= {"Axes", "Groups"}
    return sorted(words, key=lambda name: (name[0].islower(), name))


def _import_lines(names: Sequence[str]) -> list[str]:
    line = f"from giantdsl.runtime.ops import {', '.join(names)}"
    if len(line) <= 100:
        return [line]
    return ["from giantdsl.runtime.ops import (", *(f"    {name}," for name in names), ")"]
