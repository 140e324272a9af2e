"""Where in the spec a tensor comes from."""

from __future__ import annotations

from giantdsl.ir.nodes import Program
from giantdsl.ir.parameters import iter_layers, iter_parameters
from giantdsl.source import Span


def places_of(program: Program) -> dict[str, Span]:
    """By logical name, of every parameter and every layer."""
    found = {parameter.name: parameter.weight.span for parameter in iter_parameters(program)}
    return found | {name: call.span for name, call, _ in iter_layers(program)}


def place_text(span: Span) -> str:
    """`models/gpt2.giant:14`."""
    return f"{span.source.name}:{span.line}"
