"""Layers in the forward pass: linear, embedding, norms, parameters."""

from __future__ import annotations

from collections.abc import Sequence

from giantdsl.emit.code import ATOM, PRODUCT, SUM, Code, binary, method, reads_of
from giantdsl.emit.held import LATER
from giantdsl.emit.scope import Scope
from giantdsl.emit.slices import finished, mesh_of, slices
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


def aligned(x: Code, have: Sequence[str], want: Sequence[str]) -> Code:
    """x so that torch broadcasts it to the axes `want` by position as the spec does by name."""
    order = [axis for axis in want if axis in have]
    x = permuted(x, have, order)
    index = [":" if axis in have else "None" for axis in want]
    while index and index[0] == "None":
        index.pop(0)
    if "None" not in index:
        return x
    if index[-1] == "None" and index.count("None") == 1:
        return Code(f"{x.within(ATOM)}[..., None]", x.reads)
    while index[-1] == ":":
        index.pop()
    return Code(f"{x.within(ATOM)}[{', '.join(index)}]", x.reads)


def parameter(scope: Scope, use: WeightUse) -> str:
    """Where a weight is found: `self.q.weight`."""
    weight = use.weight
    names = [step + "".join(f"[{i}]" for i in at) for step, at in use.path]
    first, *rest = [*names, weight.member]
    owner = ".".join([scope.member(first), *rest])
    text = f"{owner}.{weight.leaf}" if weight.leaf else owner
    for mesh_axis in use.copied:
        text = f"copy_to({text}, {scope.group(mesh_axis)})"
    return text


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
        # Only one of them can be divided: torch finds out how much is here.
        sizes = ", ".join("-1" if mesh_of(op, a) else str(scope.extent(a)) for a in created)
        y = method(y, f"unflatten(-1, ({sizes}))")
    return permuted(y, (*rest, *created), op.result.type.axes)


def linear(scope: Scope, op: Op) -> Code:
    x, rest = _flat(scope, op, scope.code(op.inputs[0]))
    use, bias = op.weight("weight"), op.weight("bias")
    assert use is not None
    is_plain = "finish" not in op.attrs and not any(u.copied for u in op.weights)
    if not use.tied and is_plain:
        y = Code(f"{scope.member(use.weight.member)}({x.text})", x.reads)
        return _spread(scope, op, y, rest)
    if use.weight.per:
        return _expert_linear(scope, op, x, rest)
    weight = parameter(scope, use)
    made = (*use.weight.per, *axes_attr(op, "created"), *axes_attr(op, "contracted"))
    if use.weight.axes != made:
        weight += ".t()"
    if bias is None or is_plain:
        added = f", {parameter(scope, bias)}" if bias is not None else ""
        return _spread(scope, op, Code(f"F.linear({x.text}, {weight}{added})", x.reads), rest)
    product = f"F.linear({x.text}, {weight})"
    if scope.linear == LATER and not use.tied and not use.copied:
        product = f"{scope.member(use.weight.member)}.product({x.text})"
    y = _spread(scope, op, Code(product, x.reads), rest)
    return _with_bias(scope, op, scope.step(finished(scope, op, y)), bias)


def _with_bias(scope: Scope, op: Op, y: Code, bias: WeightUse) -> Code:
    """The bias joins the finished result: stored flat, it is seen in the result's axes."""
    added = Code(parameter(scope, bias))
    axes, created = bias.weight.axes, axes_attr(op, "created")
    if len(created) > 1:
        sizes = ", ".join("-1" if mesh_of(op, a) else str(scope.extent(a)) for a in created)
        added = method(added, f"unflatten(-1, ({sizes}))")
    elif not created:
        added = method(added, "squeeze(-1)")
    return binary(y, "+", aligned(added, axes, op.result.type.axes), SUM)


def _expert_linear(scope: Scope, op: Op, x: Code, rest: tuple[str, ...]) -> Code:
    use, bias = op.weight("weight"), op.weight("bias")
    assert use is not None and bias is not None
    weight = parameter(scope, use)
    y = Code(f"{x.within(ATOM)} @ {weight}.transpose(1, 2)", x.reads, PRODUCT)
    y = scope.step(finished(scope, op, _spread(scope, op, y, rest)))
    return _with_bias(scope, op, y, bias)


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
    index = str(op.attrs["index"])
    is_feature = scope.program.axes[base_axis(index)].kind is AxisKind.FEATURE
    rows = slices(scope, op, index) if is_feature else None
    if use.tied or use.copied or rows is not None:
        table = parameter(scope, use)
        if use.weight.axes[len(use.weight.per)] != op.attrs["index"]:
            table += ".t()"
        call = "F.embedding(" if rows is None else "embedding("
        y = Code(f"{call}{x.text}, {table}{'' if rows is None else f', {rows}'})", x.reads)
    else:
        y = Code(f"{scope.member(use.weight.member)}({x.text})", x.reads)
    return _spread(scope, op, y, op.inputs[0].type.axes)


def norm(scope: Scope, op: Op) -> Code:
    x, axes = scope.code(op.inputs[0]), op.inputs[0].type.axes
    if any(use.copied for use in op.weights):
        return _norm_call(scope, op, x)
    layer = scope.member(op.weights[0].weight.member)
    at = axes.index(str(op.attrs["over"]))
    if at == len(axes) - 1:
        return Code(f"{layer}({x.text})", x.reads)
    moved = f"{layer}({x.within(ATOM)}.movedim({at}, -1))"
    return Code(f"{moved}.movedim(-1, {at})", x.reads)


def _norm_call(scope: Scope, op: Op, x: Code) -> Code:
    """A norm whose parameters sum their own gradients."""
    axes, over = op.inputs[0].type.axes, str(op.attrs["over"])
    at = axes.index(over)
    last = at == len(axes) - 1
    inner = x.text if last else f"{x.within(ATOM)}.movedim({at}, -1)"
    size = f"({scope.extent(over)},)"
    given = [parameter(scope, use) for use in op.weights]
    call = "F.layer_norm" if op.kind == "layernorm" else "F.rms_norm"
    made = f"{call}({inner}, {size}, {', '.join(given)}, eps={op.attrs['eps']!r})"
    return Code(made if last else f"{made}.movedim(-1, {at})", x.reads)


def param(scope: Scope, op: Op) -> Code:
    """A bare weight, cut to the length of the sequence where that may be shorter."""
    use = op.weight("weight")
    assert use is not None
    code = Code(parameter(scope, use))
    index: list[str] = []
    reads = [code]
    for axis in op.result.type.axes:
        size = scope.size(axis)
        whole = base_axis(axis) in scope.splits
        sequence = scope.program.axes[base_axis(axis)].kind is AxisKind.SEQ
        index.append(f": {size.text}" if sequence and (size.reads or whole) else ":")
        reads.append(size)
    while index and index[-1] == ":":
        index.pop()
    made = Code(f"{code.text}[{', '.join(index)}]" if index else code.text, reads_of(reads))
    for at, axis in enumerate(op.result.type.axes):
        for mesh_axis in mesh_of(op, axis):
            if scope.program.axes[base_axis(axis)].kind is AxisKind.SEQ:
                name = scope.slices(axis, mesh_axis)
                made = Code(f"local({made.text}, {name}, dim={at})", made.reads)
    return made


def relative_bias(scope: Scope, op: Op) -> Code:
    use = op.weight("weight")
    assert use is not None
    s, t = scope.size(str(op.attrs["s"])), scope.size(str(op.attrs["t"]))
    settings = f"two_way={op.attrs['two_way']}, far={op.attrs['far']}"
    queries = slices(scope, op, str(op.attrs["s"]))
    if queries is not None:
        settings += f", queries={queries}"
    text = f"relative_bias({parameter(scope, use)}, {s.text}, {t.text}, {settings})"
    return Code(text, reads_of([s, t]))
