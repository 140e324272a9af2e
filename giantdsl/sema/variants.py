"""Which iterations of a loop do the same: bodies compared by what they compute."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from giantdsl.ir.nodes import Body, Call, Op, Repeat, Statement, Value, WeightUse


def distinct_bodies(bodies: Sequence[Body]) -> tuple[tuple[Body, ...], tuple[int, ...]]:
    """The different bodies among those of all iterations, and which one each iteration runs."""
    found: dict[Hashable, int] = {}
    kept: list[Body] = []
    pattern: list[int] = []
    for body in bodies:
        key = _key(body, {})
        if key not in found:
            found[key] = len(kept)
            kept.append(body)
        pattern.append(found[key])
    return tuple(kept), tuple(pattern)


def _key(body: Body, numbers: dict[int, int]) -> Hashable:
    """Equal for bodies that differ only in the identity of their own values."""
    local = dict(numbers)

    def number(value: Value) -> Hashable:
        return local.get(id(value), ("outer", id(value)))

    def define(values: Sequence[Value]) -> Hashable:
        for value in values:
            local[id(value)] = len(local)
        return tuple(str(value.type) for value in values)

    def statement_key(statement: Statement) -> Hashable:
        if isinstance(statement, Op):
            reads = tuple(number(v) for v in statement.inputs)
            uses = tuple(_use_key(use) for use in statement.weights)
            attrs = tuple(sorted(statement.attrs.items(), key=lambda item: item[0]))
            mine = (statement.kind, attrs, uses, statement.layer, statement.fuse, statement.site)
            return (*mine, reads, define(statement.results))
        if isinstance(statement, Call):
            reads = tuple(None if v is None else number(v) for v in statement.inputs)
            made = define(statement.results), define(statement.losses)
            return ("call", id(statement.function), statement.member, statement.site, reads, made)
        if isinstance(statement, Repeat):
            reads = tuple(number(v) for v in statement.inits)
            inner = tuple(_key(b, local) for b in statement.bodies)
            made = define(statement.results), define([v for _, v in statement.losses])
            loop = (statement.count, statement.shared, statement.pattern, statement.every)
            return ("repeat", *loop, statement.site, reads, inner, made)
        return ("stage",)

    define(body.params)
    inside = tuple(statement_key(s) for s in body.statements)
    yields = tuple(number(v) for v in body.yields)
    return inside, yields, tuple((name, number(v)) for name, v in body.losses)


def _use_key(use: WeightUse) -> Hashable:
    weight = use.weight
    if use.tied and use.path:
        return use.role, "tied", use.path, id(weight)
    facts = (weight.member, weight.leaf, weight.axes, weight.init, weight.lr, weight.decay)
    return use.role, use.tied, facts, weight.dtype
