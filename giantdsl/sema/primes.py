"""Only axes have primes: `s'` is another axis of the size of `s`, nothing else is called so."""

from __future__ import annotations

from collections.abc import Iterator

from giantdsl.diagnostics import Diagnostic, Label, Sink
from giantdsl.syntax import ast


def check_primes(file: ast.File, sink: Sink) -> None:
    """Report every primed name that is not an axis."""
    for what, name in _named(file.items):
        if name.text.endswith("'"):
            sink.add(
                Diagnostic(
                    "G109",
                    f"`{name.text}` cannot name {what}",
                    Label(name.span, "a primed name"),
                    "only axes have primes: `s'` is another axis of the same size as `s`",
                )
            )


def _named(items: tuple[ast.Item, ...]) -> Iterator[tuple[str, ast.Name]]:
    """The names a file gives, with what each one names."""
    stack: list[object] = list(reversed(items))
    while stack:
        node = stack.pop()
        if isinstance(node, tuple):
            stack.extend(reversed(node))
        if not isinstance(node, ast.Node) or isinstance(node, ast.Axes):
            continue
        if isinstance(node, ast.Model):
            yield "a model", node.name
        elif isinstance(node, ast.Block | ast.Extern):
            yield "a block", node.name
            yield from (("an axis of a block", name) for name in node.generics)
        elif isinstance(node, ast.Param):
            yield "a parameter", node.name
        elif isinstance(node, ast.Target):
            yield "a value", node.name
        elif isinstance(node, ast.Loss):
            yield "a loss", node.name
        elif isinstance(node, ast.Repeat) and node.index is not None:
            yield "an index", node.index
        elif isinstance(node, ast.Call) and node.layer is not None:
            yield "a layer", node.layer
        fields = [f for f in node.__dataclass_fields__ if f != "span"]
        stack.extend(getattr(node, f) for f in reversed(fields))
