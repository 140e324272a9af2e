"""The longer diagnostics of checkpoint maps."""

from __future__ import annotations

from collections.abc import Sequence

from giantdsl.diagnostics import Diagnostic, Fix, Label, nearest
from giantdsl.source import Span
from giantdsl.weights.slots import Layers
from giantdsl.weights.tree import EntryNode, SegmentNode


def placed_twice(name: str, span: Span, before: Span) -> Diagnostic:
    others = () if before == span else (Label(before, "first here"),)
    return Diagnostic(
        "G503",
        f"`{name}` is placed twice",
        Label(span, "again here"),
        "each weight has one place; take one of the lines out",
        others,
    )


def no_layer(
    layers: Layers, entry: EntryNode, prefix: Sequence[SegmentNode], name: str
) -> Diagnostic:
    span = entry.path_span
    if name in layers.borrowing:
        return Diagnostic(
            "G501",
            f"`{name}` has no weight of its own",
            Label(span, "its weight is tied to another layer"),
            "take this line out; the weight is mapped where it belongs",
        )
    inside = sorted(_inside(layers, name))
    if entry.children is None and inside:
        return Diagnostic(
            "G501",
            f"`{name}` is not one layer",
            Label(span, f"holds {', '.join(inside[:6])}"),
            "map what is inside it: "
            + f'`{entry.path_span.text} = "{entry.target.value}" {{ … }}`',
        )
    known = layers.prefixes - {""} if entry.children is not None else layers.slots.keys()
    near = nearest(name, known)
    around = ".".join(next(iter(segment.names)) for segment in prefix)
    if near is not None and around and near.startswith(around + "."):
        near = near[len(around) + 1 :]
    elif near is not None and around:
        near = None
    plain = all(len(segment.names) == 1 for segment in entry.path)
    fixes = (Fix(span, near),) if near is not None and plain else ()
    names = sorted(_inside(layers, around))
    otherwise = f"known here: {', '.join(names[:8])}" if names else None
    return Diagnostic(
        "G501",
        f"no layer `{name}`",
        Label(span, "the model has no such layer"),
        f"did you mean `{near}`?" if near else otherwise,
        fixes=fixes,
    )


def _inside(layers: Layers, prefix: str) -> set[str]:
    """The next steps of the layers below `prefix`; a loop's index goes with its name."""
    start = prefix + "." if prefix else ""
    found: set[str] = set()
    for layer in layers.slots:
        if layer.startswith(start) and layer != prefix:
            step, *rest = layer[len(start) :].split(".")
            while rest and rest[0] == "*":
                step += "." + rest.pop(0)
            found.add(step)
    return found
