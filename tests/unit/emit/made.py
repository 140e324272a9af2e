"""Specs as text to modules, for tests of what was emitted."""

from __future__ import annotations

import itertools
from types import ModuleType

from torch import nn

from giantdsl import resources
from giantdsl.diagnostics import Sink, render_all
from giantdsl.emit import EmittedModule, emit_module
from giantdsl.ir.nodes import Program
from giantdsl.runtime.loader import load_source
from giantdsl.sema.analyze import analyze, dims_of
from giantdsl.source import SourceFile
from giantdsl.syntax import ast, parse_file, parse_setting

_serial = itertools.count()


def program_of(text: str, name: str = "made.giant", overrides: tuple[str, ...] = ()) -> Program:
    sink = Sink()
    tree = parse_file(SourceFile(name, text), sink)
    changes: dict[str, ast.Expr] = {}
    for override in overrides:
        setting = parse_setting(SourceFile("override", override), sink)
        assert setting is not None
        changes[setting.path.parts[-1].text] = setting.value

    def load(path: str, importer: SourceFile) -> ast.File | None:
        found = resources.std_path(path)
        return (
            None if found is None else parse_file(SourceFile(str(found), found.read_text()), sink)
        )

    program = analyze(tree, dims_of(tree, changes, sink), load, sink)
    assert not sink.has_errors, render_all(sink.diagnostics)
    assert program is not None
    return program


def emitted(text: str, **named: object) -> EmittedModule:
    return emit_module(program_of(text), source_name="made.giant", **named)  # type: ignore[arg-type]


def namespace(text: str, **named: object) -> tuple[ModuleType, EmittedModule]:
    made = emitted(text, **named)
    return load_source(made.source, f"made{next(_serial)}.py"), made


def module(text: str, seed: int = 0, **named: object) -> nn.Module:
    """The model of a spec, in float64, with its initial values."""
    space, made = namespace(text, **named)
    model: nn.Module = getattr(space, made.class_name)().double()
    model.init_weights(seed)  # type: ignore[operator]
    return model


DIMS = """
model made
dims {
  b: batch;  s: seq = 6;  t: seq = 4;  slot: ragged
  d = 8;  heads = 4;  kv = 2;  hd = d / heads;  ff = 12;  vocab = pad(11, 8);  experts = 3
  ny = 2;  nx = 3;  c = 2;  h = ny * c;  one: seq = 1;  u: seq = one + t
}
"""


def forward(params: str, result: str, body: str, blocks: str = "") -> str:
    return f"{DIMS}\n{blocks}\nforward({params}) -> {result} {{\n{body}\n}}\n"
