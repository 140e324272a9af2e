"""A spec's text with the overrides of a run written into it.

A run keeps this beside its checkpoints: the file that was run, readable, its comments in place,
with no command line needed to understand it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from giantdsl.diagnostics import Sink
from giantdsl.source import SourceFile, Span
from giantdsl.syntax import ast, parse_file

# Of these the last one that was said counts, so the others must go.
_ALTERNATIVES = ("steps", "tokens", "epochs")


def resolved_text(
    source: SourceFile, changes: Sequence[ast.Setting], plan: ast.Parallel | None = None
) -> str:
    """The text under `changes`, in order; `plan` replaces its `parallel` section.

    The text must parse; each change is one that the checker accepted.
    """
    text = source.text
    if plan is not None:
        text = _with_plan(source.name, text, plan)
    for change in changes:
        text = _changed(_parse(source.name, text), change)
    return text if text.endswith("\n") else f"{text}\n"


def _parse(name: str, text: str) -> ast.File:
    sink = Sink()
    tree = parse_file(SourceFile(name, text), sink)
    sink.raise_if_errors()
    return tree


def _with_plan(name: str, text: str, plan: ast.Parallel) -> str:
    written = plan.span.text
    for item in _parse(name, text).items:
        if isinstance(item, ast.Parallel):
            return _replaced(item.span, written)
    return f"{text.rstrip()}\n\n{written}\n"


def _changed(tree: ast.File, change: ast.Setting) -> str:
    section, *path = [part.text for part in change.path.parts]
    value = change.value.span.text
    if section == "dims":
        return _dim_changed(tree, path[0], value)
    settings = list(_settings(tree, section))
    for setting in settings:
        names = [part.text for part in setting.path.parts]
        if names == path:
            return _replaced(setting.value.span, value)
        if len(path) == len(names) + 1 and path[:-1] == names:
            return _argument_changed(setting.value, path[-1], value)
    if section == "train" and len(path) == 1 and path[0] in _ALTERNATIVES:
        for setting in settings:
            if setting.path.text in _ALTERNATIVES:
                return _replaced(setting.span, f"{path[0]} = {value}")
    return _added(tree, section, f"{'.'.join(path)} = {value}")


def _settings(tree: ast.File, section: str) -> Iterator[ast.Setting]:
    for item in tree.items:
        if section == "train" and isinstance(item, ast.Train):
            yield from item.settings
        if section == "parallel" and isinstance(item, ast.Parallel):
            yield from (entry for entry in item.entries if isinstance(entry, ast.Setting))


def _dim_changed(tree: ast.File, name: str, value: str) -> str:
    for item in tree.items:
        for decl in item.decls if isinstance(item, ast.Dims) else ():
            if decl.name.text == name and decl.size is not None:
                return _replaced(decl.size.span, value)
            if decl.name.text == name:
                return _replaced(decl.span, f"{decl.span.text} = {value}")
    raise AssertionError(f"the checker accepted `dims.{name}`, which is not declared")


def _argument_changed(call: ast.Expr, name: str, value: str) -> str:
    """`lr.peak` inside `lr = cosine(peak=3e-4)`."""
    if not isinstance(call, ast.Call):
        return _replaced(call.span, f"{call.span.text}({name}={value})")
    for arg in call.args:
        if arg.name is not None and arg.name.text == name:
            return _replaced(arg.value.span, value)
    inside = call.span.text.rstrip()
    assert inside.endswith(")"), "a call in a setting ends with its arguments"
    comma = ", " if call.args else ""
    return _replaced(call.span, f"{inside[:-1].rstrip().rstrip(',')}{comma}{name}={value})")


def _added(tree: ast.File, section: str, line: str) -> str:
    """A line at the end of a section, or a new section."""
    kind = ast.Train if section == "train" else ast.Parallel
    for item in tree.items:
        if isinstance(item, kind):
            inside = item.span.text.rstrip()
            assert inside.endswith("}"), "a section ends with its brace"
            return _replaced(item.span, f"{inside[:-1].rstrip()}\n  {line}\n}}")
    return f"{tree.source.text.rstrip()}\n\n{section} {{\n  {line}\n}}\n"


def _replaced(span: Span, text: str) -> str:
    whole = span.source.text
    return f"{whole[: span.start]}{text}{whole[span.end :]}"
