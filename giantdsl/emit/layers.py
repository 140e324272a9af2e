"""Layers in the forward pass: linear, embedding, norms, parameters."""

from __future__ import annotations

from collections.abc import Sequence

from giantdsl.emit.code import ATOM, Code, method, reads_of
from giantdsl.emit.scope import Scope
from giantdsl.ir.nodes import Op, WeightUse
from giantdsl.ir.types import AxisKind, base_axis


def axes_attr(op: Op, key: str) -> tuple[str, ...]:
    value = op.attrs[key]
    assert isinstance(value, tuple)
    return tuple(str(axis) for axis in value)


def permuted(x: Code, have: Sequence[str], want: Sequence[str]) -> Code:
    """x with its axes in another order."""
    if tuple(have) == tuple(want):
        return x
    order = [list(have).index(axis) for axis in want]
    swapped = [i for i, j in enumerate(order) if i != j]
    if len(swapped) == 2:
        return method(x, f"transpose({swapped[0]}, {swapped[1]})")
    return method(x, f"permute({', '.join(map(str, order))})")


def parameter(scope: Scope, use: WeightUse) -> str:
    """Where a weight is found: `self.q.weight`."""
    weight = use.weight
    steps = "".join("." + step + "".join(f"[{i}]" for i in at) for step, at in use.path)
    owner = f"self{steps}.{weight.member}" if use.path else scope.member(weight.member)
    return f"{owner}.{weight.leaf}" if weight.leaf else owner


def _flat(scope: Scope, op: Op, x: Code) -> tuple[Code, tuple[str, ...]]:
    """x with the contracted axes last and as one, and the axes before them."""
    axes, contracted = op.inputs[0].type.axes, axes_attr(op, "contracted")
    rest = tuple(a for a in axes if a not in contracted)
    x = permuted(x, axes, (*rest, *contracted))
    return (method(x, f"flatten(-{len(contracted)})") if len(contracted) > 1 else x), rest


def _spread(scope: Scope, op: Op, y: Code, rest: tuple[str, ...]) -> Code:
    """y [.., created as one] with the created axes apart, in the order of the result."""
    created = axes_attr(op, "created")
    if not created:
        y = method(y, "squeeze(-1)")
    elif len(created) > 1:
        sizes = ", ".join(str(scope.extent(axis)) for axis in created)
        y = method(y, f"unflatten(-1, ({sizes}))")
    return permuted(y, (*rest, *created), op.result.type.axes)


def linear(scope: Scope, op: Op) -> Code:
    x, rest = _flat(scope, op, scope.code(op.inputs[0]))
    use, bias = op.weight("weight"), op.weight("bias")
    assert use is not None
    if not use.tied:
        y = Code(f"{scope.member(use.weight.member)}({x.text})", x.reads)
        return _spread(scope, op, y, rest)
    weight = parameter(scope, use)
    made = (*use.weight.per, *axes_attr(op, "created"), *axes_attr(op, "contracted"))
    if use.weight.axes != made:
        weight += ".t()"
    added = f", {parameter(scope, bias)}" if bias is not None else ""
    return _spread(scope, op, Code(f"F.linear({x.text}, {weight}{added})", x.reads), rest)


def fused_linear(scope: Scope, ops: Sequence[Op]) -> None:
    """Several linear layers written as one call: one matrix product."""
    if any(use.weight.per or use.tied for op in ops for use in op.weights):
        value = ops[0].inputs[0]
        x = scope.code(value)
        if not x.is_name:
            scope.assign(value, x, scope.new_name("h"))
        for op in ops:
            scope.alias(op.inputs[0], value)
            scope.define(op.result, linear(scope, op))
        return
    x, rest = _flat(scope, ops[0], scope.code(ops[0].inputs[0]))
    names = [
        scope.variable_of(op.result) if op.result.name else scope.name_for(op.layer) for op in ops
    ]
    for name in names:
        scope.before_change(name)
    layers = ", ".join(scope.member(op.layer) for op in ops)
    scope.write(f"{', '.join(names)} = fused({x.text}, {layers})")
    for op, name in zip(ops, names, strict=True):
        scope.bind(op.result, name)
        y = _spread(scope, op, Code(name, frozenset({name})), rest)
        if y.text != name:
            scope.write(f"{name} = {y.text}", scope.shape(op.result))


def embedding(scope: Scope, op: Op) -> Code:
    x, use = scope.code(op.inputs[0]), op.weight("weight")
    assert use is not None
    if use.tied:
        table = parameter(scope, use)
        if use.weight.axes[len(use.weight.per)] != op.attrs["index"]:
            table += ".t()"
        y = Code(f"F.embedding({x.text}, {table})", x.reads)
    else:
        y = Code(f"{scope.member(use.weight.member)}({x.text})", x.reads)
    return _spread(scope, op, y, op.inputs[0].type.axes)


def norm(scope: Scope, op: Op) -> Code:
    x, axes = scope.code(op.inputs[0]), op.inputs[0].type.axes
    layer = scope.member(op.weights[0].weight.member)
    at = axes.index(str(op.attrs["over"]))
    if at == len(axes) - 1:
        return Code(f"{layer}({x.text})", x.reads)
    moved = f"{layer}({x.within(ATOM)}.movedim({at}, -1))"
    return Code(f"{moved}.movedim(-1, {at})", x.reads)


def param(scope: Scope, op: Op) -> Code:
    """A bare weight, cut to the length of the sequence where that may be shorter."""
    use = op.weight("weight")
    assert use is not None
    code = Code(parameter(scope, use))
    index: list[str] = []
    reads = [code]
    for axis in op.result.type.axes:
        size = scope.size(axis)
        sequence = scope.program.axes[base_axis(axis)].kind is AxisKind.SEQ
        index.append(f": {size.text}" if sequence and size.reads else ":")
        reads.append(size)
    while index and index[-1] == ":":
        index.pop()
    return Code(f"{code.text}[{', '.join(index)}]" if index else code.text, reads_of(reads))


def relative_bias(scope: Scope, op: Op) -> Code:
    use = op.weight("weight")
    assert use is not None
    s, t = scope.size(str(op.attrs["s"])), scope.size(str(op.attrs["t"]))
    settings = f"two_way={op.attrs['two_way']}, far={op.attrs['far']}"
    text = f"relative_bias({parameter(scope, use)}, {s.text}, {t.text}, {settings})"
    return Code(text, reads_of([s, t]))
