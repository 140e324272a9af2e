"""From the right side of a map entry to a recipe: default, `.T`, and layouts in brackets."""

from __future__ import annotations

import re
from dataclasses import dataclass

from giantdsl.diagnostics import Diagnostic, Label, Sink, did_you_mean
from giantdsl.ir.nodes import Program, Weight
from giantdsl.ir.parameters import stored_shape
from giantdsl.ir.types import base_axis
from giantdsl.weights.recipe import MEMBER, UNIT, Recipe
from giantdsl.weights.tree import EntryNode, NameNode

_BRACE = re.compile(r"\{([^{}]*)\}")


@dataclass(frozen=True, slots=True)
class _Facts:
    """A weight's axes under names of their own: the second `d` of a square map is `d'`."""

    axes: tuple[str, ...]
    sizes: tuple[int, ...]
    padded: tuple[int, ...]
    shape: tuple[int, ...]
    per: tuple[str, ...]
    first: tuple[str, ...]
    second: tuple[str, ...]


def braces_of(target: str) -> tuple[str, ...]:
    """`experts` of `block.{experts}.w1`."""
    return tuple(_BRACE.findall(target))


def build_recipe(
    entry: EntryNode, target: str, weight: Weight, members: int, program: Program, sink: Sink
) -> Recipe | None:
    """The recipe of one weight of a layer, or None after reporting G504 or G505.

    `target` is the stored name with all prefixes; `members` layers share the stored tensor.
    """
    facts = _facts(program, weight)
    braces = braces_of(target)
    for brace in braces:
        if brace not in facts.axes:
            if weight.leaf == "bias" and _is_axis(program, brace):
                sink.add(_bias_without_brace(entry, brace, facts))
            else:
                sink.add(_unknown_brace(entry, brace, facts, program))
            return None
    dims = _dims(entry, weight, facts, braces, members, program, sink)
    if dims is None:
        return None
    return Recipe(facts.axes, facts.sizes, facts.padded, facts.shape, dims, braces, members)


def _facts(program: Program, weight: Weight) -> _Facts:
    names: list[str] = []
    for axis in weight.axes:
        names.append(axis if axis not in names else axis + "'")
    axes = [program.axes[base_axis(name)] for name in names]
    sizes = tuple(axis.extent or 0 for axis in axes)
    padded = tuple(axis.size or 0 for axis in axes)
    per = len(weight.per)
    table = bool(weight.in_axes) and weight.axes[per : per + 1] == weight.in_axes[:1]
    count = len(weight.in_axes) if table else len(weight.out_axes)
    if weight.out_axes == weight.in_axes:
        count = len(weight.out_axes)
    cut = per + count
    shape = stored_shape(program, weight)
    ordered = tuple(names)
    return _Facts(ordered, sizes, padded, shape, ordered[:per], ordered[per:cut], ordered[cut:])


def _dims(
    entry: EntryNode,
    weight: Weight,
    facts: _Facts,
    braces: tuple[str, ...],
    members: int,
    program: Program,
    sink: Sink,
) -> tuple[tuple[str, ...], ...] | None:
    """The stored tensor's dimensions as groups of axes."""
    kept = tuple(axis for axis in facts.axes if axis not in braces)
    if entry.layout is not None:
        return _written(entry, weight, facts, kept, members, program, sink)
    per = tuple((axis,) for axis in facts.per if axis in kept)
    if weight.leaf == "":
        return tuple((axis,) for axis in kept)
    first = tuple(axis for axis in facts.first if axis in kept)
    second = tuple(axis for axis in facts.second if axis in kept)
    if entry.transposed and second:
        first, second = second, first
    return (*per, *(group for group in (first, second) if group))


def _written(
    entry: EntryNode,
    weight: Weight,
    facts: _Facts,
    kept: tuple[str, ...],
    members: int,
    program: Program,
    sink: Sink,
) -> tuple[tuple[str, ...], ...] | None:
    """The layout in brackets; for a bias without the axes that a bias does not have."""
    seen: list[str] = []
    dims: list[tuple[str, ...]] = []
    for group in entry.layout or ():
        here: list[str] = []
        for name in group.names:
            axis = _place(name, facts, seen, program, weight.leaf, sink)
            if axis is None:
                return None
            if axis:
                here.append(axis)
                seen += [] if axis == UNIT else [axis]
        if here:
            dims.append(tuple(here))
    missing = [axis for axis in kept if axis not in seen]
    extra = [axis for axis in seen if axis not in kept and axis != MEMBER]
    if missing or extra or seen.count(MEMBER) != (members > 1):
        sink.add(_misfit(entry, weight, facts, kept, missing, extra, members))
        return None
    return tuple(dims)


def _place(
    name: NameNode, facts: _Facts, seen: list[str], program: Program, leaf: str, sink: Sink
) -> str | None:
    """The axis a word of a layout stands for; "" where a bias does without; None: reported."""
    text = name.text
    if text == MEMBER:
        if MEMBER in seen:
            sink.add(
                Diagnostic(
                    "G504",
                    "`_` stands twice in one layout",
                    Label(name.span, "again"),
                    "one `_`, where the stored tensor goes from one layer to the next",
                )
            )
            return None
        return MEMBER
    for axis in (text, text + "'"):
        if axis in facts.axes and axis not in seen:
            return axis
    if not _is_axis(program, text):
        known = [*program.axes, *facts.axes]
        sink.add(
            Diagnostic(
                "G505",
                f"no axis `{text}`",
                Label(name.span, "not declared in `dims`"),
                did_you_mean(text, known, f"this weight is over {_shown(facts.axes)}"),
            )
        )
        return None
    if program.axes[base_axis(text)].extent == 1:
        return UNIT if leaf != "bias" else ""
    if leaf == "bias":
        return ""
    twice = f"`{text}` stands twice in one layout"
    sink.add(
        Diagnostic(
            "G504",
            twice if text in seen else f"`{text}` is not an axis of this weight",
            Label(name.span, f"the weight is over {_shown(facts.axes)}"),
            f"group exactly these axes: {_shown(facts.axes)}",
        )
    )
    return None


def _misfit(
    entry: EntryNode,
    weight: Weight,
    facts: _Facts,
    kept: tuple[str, ...],
    missing: list[str],
    extra: list[str],
    members: int,
) -> Diagnostic:
    layout = entry.layout or ()
    span = layout[0].span.to(layout[-1].span) if layout else entry.span
    if missing:
        label = f"{_ticked(missing)} missing"
        help_ = f"the {weight.leaf or 'weight'} is over {_shown(facts.axes)}"
        if members > 1:
            help_ += "; `_` tells the fused layers apart"
    elif extra:
        label = f"{_ticked(extra)} already picked by the name"
        help_ = f"the stored tensors are over {_shown(kept)}"
    elif members > 1:
        label = "nothing tells the fused layers apart"
        help_ = "put a `_` where the stored tensor goes from one layer to the next"
    else:
        label = "`_` has nothing to tell apart"
        help_ = "`_` goes with several layers: `(q, k, v) = …`"
    return Diagnostic("G504", "the layout does not fit the weight", Label(span, label), help_)


def _unknown_brace(entry: EntryNode, brace: str, facts: _Facts, program: Program) -> Diagnostic:
    span = entry.target.span
    if _is_axis(program, brace):
        return Diagnostic(
            "G505",
            f"this weight has no axis `{brace}`",
            Label(span, f"the weight is over {_shown(facts.axes)}"),
            "in braces goes an axis of the weight: one stored tensor for each of its indices",
        )
    return Diagnostic(
        "G505",
        f"no axis `{brace}`",
        Label(span, "not declared in `dims`"),
        did_you_mean(brace, program.axes, "in braces goes an axis of the weight"),
    )


def _bias_without_brace(entry: EntryNode, brace: str, facts: _Facts) -> Diagnostic:
    return Diagnostic(
        "G505",
        f"the bias has no axis `{brace}`",
        Label(entry.target.span, f"the bias is over {_shown(facts.axes)}"),
        "map weight and bias on lines of their own: `q.weight = …` and `q.bias = …`",
    )


def _is_axis(program: Program, name: str) -> bool:
    axis = program.axes.get(base_axis(name))
    return axis is not None and axis.extent is not None


def _shown(axes: tuple[str, ...]) -> str:
    return "[" + ", ".join(axes) + "]"


def _ticked(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) + (" is" if len(names) == 1 else " are")
