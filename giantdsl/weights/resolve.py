"""From the `weights` sections of a spec to rules: which stored tensor is which parameter.

Everything is checked with loops left as `*`, so the work does not grow with the number of
layers. Codes: G501 no such layer, G502 a weight without a place, G503 placed twice, G504 a
layout that does not fit, G505 unknown axes, G506 no such map in the library.
"""

from __future__ import annotations

from collections.abc import Callable

from giantdsl.diagnostics import Diagnostic, Label, Sink
from giantdsl.ir.nodes import Program
from giantdsl.source import SourceFile, Span
from giantdsl.weights.library import no_map, pick_map, sections_of
from giantdsl.weights.placing import Placer
from giantdsl.weights.recipe import WeightMap
from giantdsl.weights.slots import Layers, find_layers
from giantdsl.weights.tree import FileNode, WeightsNode

Loader = Callable[[str, SourceFile], FileNode | None]
"""Finds and parses the library file of that name, as seen from the file that names it."""


def check_maps(
    tree: FileNode, program: Program, load: Loader, sink: Sink
) -> dict[str, WeightsNode]:
    """Check every map of a spec. Gives the sections by name, library maps looked up."""
    found: dict[str, WeightsNode] = {}
    layers = find_layers(program)
    for section in sections_of(tree):
        name = section.name
        if name.text in found:
            sink.add(_written_twice(section, found[name.text]))
            continue
        found[name.text] = section
        held: WeightsNode | None = section
        if section.path is not None:
            library = load(section.path.value, section.span.source)
            if library is None:
                sink.add(no_map(section))
                continue
            held = pick_map(section, sections_of(library), sink)
        if held is not None:
            found[name.text] = held
            _resolve(held, program, layers, sink, name.span)
    return found


def resolve(weights: WeightsNode, program: Program, sink: Sink) -> WeightMap | None:
    """The rules of a section with entries; None after reporting what is wrong with it."""
    return _resolve(weights, program, find_layers(program), sink, weights.name.span)


def _resolve(
    weights: WeightsNode, program: Program, layers: Layers, sink: Sink, at: Span
) -> WeightMap | None:
    """`at` is where an incomplete map is reported: in the user's file, not the library's."""
    own = Sink()
    placer = Placer(program, layers, own)
    for entry in weights.entries or ():
        placer.visit(entry, (), "")
    placer.check_complete(weights.name.text, at)
    for diagnostic in own.diagnostics:
        sink.add(diagnostic)
    if own.has_errors:
        return None
    return WeightMap(weights.name.text, tuple(placer.rules))


def _written_twice(section: WeightsNode, before: WeightsNode) -> Diagnostic:
    return Diagnostic(
        "G503",
        f"`weights {section.name.text}` is written twice",
        Label(section.name.span, "again here"),
        "one map of each name; call the other one something else",
        (Label(before.name.span, "first here"),),
    )
