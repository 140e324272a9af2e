"""A program as one Python file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from giantdsl.emit.classes import ClassWriter
from giantdsl.emit.counts import loss_counts
from giantdsl.emit.prelude_text import imports, needed, parts
from giantdsl.emit.smoke import smoke_test
from giantdsl.ir.nodes import Program
from giantdsl.ir.parameters import count_parameters
from giantdsl.source import Span


@dataclass(frozen=True, slots=True)
class EmittedModule:
    """The text of a file and what is in it.

    `classes` maps a block's name to the classes made of it. `renamed` are the inputs whose
    parameter of `forward` is called differently. `line_map` maps a line of the text, counted from
    1, to the place in the spec it was made from.
    """

    source: str
    class_name: str
    classes: dict[str, tuple[str, ...]]
    renamed: dict[str, str]
    line_map: dict[int, Span]


def emit_module(
    program: Program, *, recompute: Sequence[str] = (), source_name: str, runnable: bool = True
) -> EmittedModule:
    """The plain PyTorch module of a program: what `docs/emitted.md` promises.

    `recompute` names blocks whose activations are made again in the backward pass. The same
    program always gives the same bytes. `runnable`: `python FILE.py` tries the module.
    """
    reserved = frozenset(parts()) | frozenset(program.externs)
    shown = source_name.replace("\\", "/").split("/")[-1]
    writer = ClassWriter(program, reserved, frozenset(recompute), shown)
    writer.run()
    writer.texts[-1][1].lines.extend(loss_counts(program, reserved))
    body = "\n".join(writer.lines)
    helpers = [parts()[key].text for key in needed(body)]
    test = smoke_test(program, writer.names[id(program.forward)], reserved) if runnable else []
    head = [f'"""{program.model}, {count_parameters(program):,} parameters.', ""]
    head += [f"Made by giantdsl from {shown}; edit that.", '"""', ""]
    head += imports("\n".join([*helpers, body, *test]), extern_imports(program))
    for helper in helpers:
        head += ["", "", *helper.split("\n")]
    return written(head, writer, test)


def written(head: Sequence[str], writer: ClassWriter, tail: Sequence[str] = ()) -> EmittedModule:
    """The file: `head`, the classes that the writer made, `tail`."""
    lines = list(head)
    line_map: dict[int, Span] = {}
    for name, text in writer.texts:
        lines += ["", "", f"class {name}(nn.Module):"]
        line_map.update((len(lines) + i + 1, span) for i, span in enumerate(text.spans))
        lines += text.lines
    lines += ["", "", *tail] if tail else []
    classes: dict[str, dict[str, None]] = {}
    for function in writer.program.functions:
        classes.setdefault(function.name, {})[writer.names[id(function)]] = None
    return EmittedModule(
        source="\n".join(lines) + "\n",
        class_name=writer.names[id(writer.program.forward)],
        classes={name: tuple(made) for name, made in classes.items()},
        renamed=writer.renamed,
        line_map=line_map,
    )


def extern_imports(program: Program) -> list[str]:
    found: dict[str, list[str]] = {}
    for name, extern in program.externs.items():
        module, _, function = extern.target.partition(":")
        shown = function if function == name else f"{function} as {name}"
        found.setdefault(module, []).append(shown)
    return [f"from {module} import {', '.join(sorted(names))}" for module, names in found.items()]
