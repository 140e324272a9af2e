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

    `classes` maps a block's name to the classes made of it. `line_map` maps a line of the text,
    counted from 1, to the place in the spec it was made from.
    """

    source: str
    class_name: str
    classes: dict[str, tuple[str, ...]]
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
    name = writer.names[id(program.forward)]
    texts = [(n, list(text.lines), text.spans) for n, text in writer.texts]
    texts[-1][1].extend(loss_counts(program, reserved))
    classes: dict[str, dict[str, None]] = {}
    for function in program.functions:
        classes.setdefault(function.name, {})[writer.names[id(function)]] = None
    body = "\n".join(line for _, lines, _ in texts for line in lines)
    helpers = [parts()[key].text for key in needed(body)]
    test = smoke_test(program, name) if runnable else []
    lines = [f'"""{program.model}, {count_parameters(program):,} parameters.', ""]
    lines += [f"Made by giantdsl from {shown}; edit that.", '"""', ""]
    lines += imports("\n".join([*helpers, body, *test]), extern_imports(program))
    for helper in helpers:
        lines += ["", "", *helper.split("\n")]
    line_map: dict[int, Span] = {}
    for class_text, class_lines, spans in texts:
        lines += ["", "", f"class {class_text}(nn.Module):"]
        line_map.update((len(lines) + i + 1, span) for i, span in enumerate(spans))
        lines += class_lines
    lines += ["", "", *test] if test else []
    return EmittedModule(
        "\n".join(lines) + "\n", name, {k: tuple(v) for k, v in classes.items()}, line_map
    )


def extern_imports(program: Program) -> list[str]:
    found: dict[str, list[str]] = {}
    for name, extern in program.externs.items():
        module, _, function = extern.target.partition(":")
        shown = function if function == name else f"{function} as {name}"
        found.setdefault(module, []).append(shown)
    return [f"from {module} import {', '.join(sorted(names))}" for module, names in found.items()]
