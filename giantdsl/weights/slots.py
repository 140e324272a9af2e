"""The layers of a program that have weights, with loops left as `*`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from giantdsl.ir.nodes import Call, Op, Program, Repeat, Statement, Weight
from giantdsl.ir.parameters import join


@dataclass(frozen=True, slots=True)
class Slot:
    """A weight of layer `layer` (`decoder.*.attention.q`) for all `indices` of its loops.

    A layer has several slots of one leaf when the iterations of a loop differ.
    """

    layer: str
    weight: Weight
    indices: tuple[Sequence[int], ...]
    is_tied: bool


@dataclass(frozen=True, slots=True)
class Layers:
    """`slots` by layer; `borrowing` names the layers whose weights all belong to other layers."""

    slots: dict[str, tuple[Slot, ...]]
    borrowing: frozenset[str]
    prefixes: frozenset[str]


def find_layers(program: Program) -> Layers:
    """Every layer once, however many iterations its loops have."""
    tied = _tied_weights(program)
    slots: dict[str, list[Slot]] = {}
    used: set[str] = set()
    for layer, weight, indices in _walk(program.forward.statements, "", "", ()):
        used.add(layer)
        if weight is not None:
            slots.setdefault(layer, []).append(Slot(layer, weight, indices, id(weight) in tied))
    prefixes = {""}
    for layer in slots:
        steps = layer.split(".")
        prefixes.update(".".join(steps[:i]) for i in range(1, len(steps)))
    return Layers(
        {layer: tuple(found) for layer, found in slots.items()},
        frozenset(used - slots.keys()),
        frozenset(prefixes),
    )


def _tied_weights(program: Program) -> set[int]:
    tied: set[int] = set()
    for function in program.functions:
        stack = list(function.statements)
        while stack:
            statement = stack.pop()
            if isinstance(statement, Op):
                tied.update(id(use.weight) for use in statement.weights if use.tied)
            elif isinstance(statement, Repeat):
                stack += [inner for body in statement.bodies for inner in body.statements]
    return tied


_Indices = tuple[Sequence[int], ...]


def _walk(
    statements: list[Statement], prefix: str, index: str, indices: _Indices
) -> Iterator[tuple[str, Weight | None, _Indices]]:
    """(layer, its weight or None where it borrows one, loop indices) in order of use."""
    for statement in statements:
        if isinstance(statement, Op):
            for use in statement.weights:
                if use.tied:
                    yield (
                        join(prefix, statement.layer or statement.result.name, index),
                        None,
                        indices,
                    )
                else:
                    yield join(prefix, use.weight.member, index), use.weight, indices
        elif isinstance(statement, Call):
            inside = join(prefix, statement.member, index)
            yield from _walk(statement.function.statements, inside, "", indices)
        elif isinstance(statement, Repeat):
            yield from _walk_loop(statement, prefix, index, indices)


def _walk_loop(
    loop: Repeat, prefix: str, index: str, indices: _Indices
) -> Iterator[tuple[str, Weight | None, _Indices]]:
    if loop.shared:
        if loop.bodies:
            yield from _walk(loop.bodies[0].statements, prefix, index, indices)
        return
    for variant, body in enumerate(loop.bodies):
        if len(loop.bodies) == 1:
            here: Sequence[int] = range(loop.count)
        else:
            here = tuple(i for i, chosen in enumerate(loop.pattern) if chosen == variant)
        yield from _walk(body.statements, prefix, join(index, "*"), (*indices, here))
