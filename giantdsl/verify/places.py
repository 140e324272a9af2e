"""Where in the spec a tensor comes from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from giantdsl.ir.nodes import Call, Program, Repeat, Statement
from giantdsl.ir.parameters import iter_parameters, join
from giantdsl.source import Span


def places_of(program: Program) -> dict[str, Span]:
    """By logical name, of every parameter and every layer."""
    found = {parameter.name: parameter.weight.span for parameter in iter_parameters(program)}
    found.update(_layers(program.forward.statements, "", ""))
    return found


def _layers(statements: Sequence[Statement], prefix: str, index: str) -> Iterator[tuple[str, Span]]:
    for statement in statements:
        if isinstance(statement, Call):
            name = join(prefix, statement.member, index)
            yield name, statement.span
            yield from _layers(statement.function.statements, name, "")
        elif isinstance(statement, Repeat) and statement.bodies:
            for i, variant in enumerate(statement.pattern, statement.first):
                inner = index if statement.shared else join(index, str(i))
                yield from _layers(statement.bodies[variant].statements, prefix, inner)


def place_text(span: Span) -> str:
    """`models/gpt2.giant:14`."""
    return f"{span.source.name}:{span.line}"
