"""Which names a file may give: no primes but on axes, no second meaning for a parameter."""

from __future__ import annotations

from collections.abc import Collection, Iterator

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


def check_parameters(file: ast.File, sizes: Collection[str], sink: Sink) -> None:
    """Report parameters that stand twice, or that are named like a size or a block of the file."""
    blocks = {item.name.text for item in file.items if isinstance(item, ast.Block | ast.Extern)}
    for item in file.items:
        if not isinstance(item, ast.Block | ast.Extern):
            continue
        seen: dict[str, ast.Name] = {}
        for name in (*item.generics, *(param.name for param in item.params)):
            first = seen.setdefault(name.text, name)
            if first is not name:
                sink.add(
                    Diagnostic(
                        "G104",
                        f"`{name.text}` is given twice",
                        Label(name.span, "again here"),
                        "parameters have different names",
                        (Label(first.span, "first here"),),
                    )
                )
        for param in item.params:
            text = param.name.text
            if text in sizes or text in blocks:
                what = "a size" if text in sizes else "a block"
                sink.add(
                    Diagnostic(
                        "G104",
                        f"`{text}` is already {what}",
                        Label(param.name.span, "a second meaning"),
                        "use another name for the parameter",
                    )
                )
