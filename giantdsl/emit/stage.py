"""A stage as a Python file of its own, written against `giantdsl.runtime.ops`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from giantdsl.emit.classes import ClassWriter
from giantdsl.emit.held import LATER, Held
from giantdsl.emit.module import EmittedModule, extern_imports
from giantdsl.emit.names import TAKEN
from giantdsl.emit.prelude_text import imports, parts
from giantdsl.emit.slices import CONVERSIONS
from giantdsl.ir.nodes import Program
from giantdsl.plan import AxisSplit
from giantdsl.source import Span

_OPS = (*CONVERSIONS, "Axes", "Groups", LATER, "Split", "embedding", "mse", "pick")
"""What the runtime has besides the functions that plain files carry along."""


def reserved_names(program: Program) -> frozenset[str]:
    """Names that no parameter of a stage's `forward` can have as they are."""
    return frozenset((*parts(), *_OPS, *TAKEN, *program.externs))


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
    class_name = writer.names[id(program.forward)]
    line_map: dict[int, Span] = {}
    head = _axes_function(held.splits)
    texts = [line for _, text in writer.texts for line in text.lines]
    used = _used("\n".join([*head, *texts]), names)
    lines = [f'"""{title}', "", f"Made by giantdsl from {shown}; edit that.", '"""', ""]
    ours = "\n".join(_import_lines(used))
    found = imports("\n".join(texts), [*extern_imports(program), ours])
    if not re.search(r"\btorch\.", "\n".join(texts)):
        found.remove("import torch")
    lines += [*"\n".join(found).split("\n"), "", "", *head]
    for name, text in writer.texts:
        lines += ["", "", f"class {name}(nn.Module):"]
        line_map.update((len(lines) + i + 1, span) for i, span in enumerate(text.spans))
        lines += text.lines
    classes: dict[str, dict[str, None]] = {}
    for function in program.functions:
        classes.setdefault(function.name, {})[writer.names[id(function)]] = None
    by_block = {name: tuple(made) for name, made in classes.items()}
    return EmittedModule("\n".join(lines) + "\n", class_name, by_block, line_map)


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
