"""What is known of a function once all of it has been read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from giantdsl.ir.nodes import Call, Function, Op, Repeat, StageMark, Statement, Value, Weight


def own_weights(statements: Sequence[Statement]) -> list[Weight]:
    """The weights a function owns, in order of use, loops entered."""
    found: list[Weight] = []
    for statement in statements:
        if isinstance(statement, Op):
            found += [use.weight for use in statement.weights if not use.tied]
        elif isinstance(statement, Repeat):
            for body in statement.bodies:
                found += own_weights(body.statements)
    return found


def draws_random(statements: Sequence[Statement]) -> bool:
    """Whether something in here draws random numbers."""
    return any(
        not isinstance(statement, StageMark) and statement.site is not None
        for statement in statements
    )


def loss_only_params(
    params: Sequence[Value],
    statements: Sequence[Statement],
    results: Iterable[Value],
    losses: Iterable[Value],
) -> frozenset[int]:
    """Positions of the parameters that losses need and results do not."""
    for_results = needed_values(statements, results, with_losses=False)
    for_losses = needed_values(statements, losses, with_losses=True)
    return frozenset(
        i for i, p in enumerate(params) if id(p) in for_losses and id(p) not in for_results
    )


def needed_values(
    statements: Sequence[Statement], wanted: Iterable[Value], with_losses: bool
) -> set[int]:
    """ids of all values that `wanted` are computed from. With `with_losses`, what the losses of
    a call or loop are computed from counts wherever its losses or results are needed."""
    needed = {id(value) for value in wanted}
    for statement in reversed(statements):
        if isinstance(statement, Op):
            if any(id(r) in needed for r in statement.results):
                needed.update(id(v) for v in statement.inputs)
        elif isinstance(statement, Call):
            _through_call(statement, needed, with_losses)
        elif isinstance(statement, Repeat):
            _through_loop(statement, needed, with_losses)
    return needed


def _through_call(call: Call, needed: set[int], with_losses: bool) -> None:
    losses = any(id(v) in needed for v in call.losses)
    if not losses and not any(id(r) in needed for r in call.results):
        return
    skipped: frozenset[int] = frozenset() if losses and with_losses else call.function.loss_only
    for i, value in enumerate(call.inputs):
        if value is not None and i not in skipped:
            needed.add(id(value))


def _through_loop(loop: Repeat, needed: set[int], with_losses: bool) -> None:
    losses = any(id(v) in needed for _, v in loop.losses)
    carried = [i for i, r in enumerate(loop.results) if id(r) in needed]
    if not losses and not carried:
        return
    for body in loop.bodies:
        wanted = list(body.yields)
        if losses:
            wanted += [v for _, v in body.losses]
        inside = needed_values(body.statements, wanted, with_losses)
        needed.update(inside)
    needed.update(id(v) for v in loop.inits)


def reachable_functions(forward: Function) -> list[Function]:
    """Every function used, callees before callers."""
    order: list[Function] = []
    seen: set[int] = set()

    def visit(function: Function) -> None:
        if id(function) in seen:
            return
        seen.add(id(function))
        visit_statements(function.statements)
        order.append(function)

    def visit_statements(statements: Sequence[Statement]) -> None:
        for statement in statements:
            if isinstance(statement, Call):
                visit(statement.function)
            elif isinstance(statement, Repeat):
                for body in statement.bodies:
                    visit_statements(body.statements)

    visit(forward)
    return order
