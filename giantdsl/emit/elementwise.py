"""Element by element, reductions and shapes in the forward pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from giantdsl.emit.code import ATOM, PRODUCT, SUM, UNARY, Code, binary, method, power, reads_of
from giantdsl.emit.layers import aligned, axes_attr, permuted
from giantdsl.emit.scope import Scope
from giantdsl.emit.slices import mesh_of, parts, slices
from giantdsl.ir.nodes import Op
from giantdsl.ir.types import base_axis

UNARY_CALLS = {
    "gelu": "F.gelu({})",
    "gelu_tanh": 'F.gelu({}, approximate="tanh")',
    "silu": "F.silu({})",
    "relu": "F.relu({})",
    "tanh": "torch.tanh({})",
    "sigmoid": "torch.sigmoid({})",
    "exp": "torch.exp({})",
    "log": "torch.log({})",
    "sqrt": "torch.sqrt({})",
}
BINARY_SIGNS = {"add": ("+", SUM), "sub": ("-", SUM), "mul": ("*", PRODUCT), "div": ("/", PRODUCT)}


def unary(scope: Scope, op: Op) -> Code:
    x = scope.code(op.inputs[0])
    return Code(UNARY_CALLS[op.kind].format(x.text), x.reads)


def with_number(scope: Scope, op: Op) -> Code:
    x, by = scope.code(op.inputs[0]), op.attrs["by"]
    assert isinstance(by, int | float)
    if op.kind == "scale":
        divisor = op.attrs.get("divisor")
        if divisor is not None:
            return binary(x, "/", Code(repr(divisor)), PRODUCT)
        if by == -1:
            return Code(f"-{x.within(ATOM)}", x.reads, UNARY)
        return binary(x, "*", Code(repr(by)), PRODUCT)
    if op.kind == "shift":
        return binary(x, "-" if by < 0 else "+", Code(repr(abs(by))), SUM)
    if op.kind == "rdiv":
        return binary(Code(repr(by)), "/", x, PRODUCT)
    if op.kind == "power":
        return power(x, by)
    inner = binary(x, "/", Code(repr(by)), PRODUCT)
    return binary(Code(repr(by)), "*", Code(f"torch.tanh({inner.text})", x.reads), PRODUCT)


def two(scope: Scope, op: Op) -> Code:
    want = op.result.type.axes
    left, right = (aligned(scope.code(v), v.type.axes, want) for v in op.inputs)
    sign, level = BINARY_SIGNS[op.kind]
    return binary(left, sign, right, level)


def where(scope: Scope, op: Op) -> Code:
    want = op.result.type.axes
    parts = [aligned(scope.code(v), v.type.axes, want) for v in op.inputs]
    return Code(f"torch.where({', '.join(p.text for p in parts)})", reads_of(parts))


def dropout(scope: Scope, op: Op) -> Code:
    x, places = scope.code(op.inputs[0]), parts(scope, op, op.inputs[0])
    where = f", {places}" if places else ""
    text = f"dropout({x.text}, {op.attrs['p']!r}, fold({scope.noise}, {op.site}){where})"
    return Code(text, x.reads)


def softmax(scope: Scope, op: Op) -> Code:
    x, axes = scope.code(op.inputs[0]), op.inputs[0].type.axes
    return Code(
        f"torch.softmax({x.text}, dim={axes.index(str(op.attrs['over'])) - len(axes)})", x.reads
    )


def reduce(scope: Scope, op: Op) -> Code:
    x, axes = scope.code(op.inputs[0]), op.inputs[0].type.axes
    over = axes_attr(op, "over")
    dims = sorted(axes.index(axis) for axis in over)
    if op.kind == "mean" and any(mesh_of(op, axis) for axis in over):
        return _mean_of_parts(scope, op, x, dims)
    name = {"mean": "mean", "sum": "sum", "max": "amax"}[op.kind]
    if len(dims) == len(axes):
        return method(x, f"{name}()")
    return method(x, f"{name}({dims[0]})" if len(dims) == 1 else f"{name}({tuple(dims)})")


def _mean_of_parts(scope: Scope, op: Op, x: Code, dims: Sequence[int]) -> Code:
    """This rank's term of a mean over a divided axis: the sum over what the whole axis has."""
    counts = [scope.size(axis) for axis in axes_attr(op, "over")]
    total = Code(" * ".join(c.text for c in counts), reads_of(counts), PRODUCT)
    inside = str(dims[0]) if len(dims) == 1 else str(tuple(dims))
    return binary(method(x, f"sum({inside})"), "/", total, PRODUCT)


def pick(scope: Scope, op: Op) -> Code:
    x, at = scope.code(op.inputs[0]), op.inputs[0].type.axes.index(str(op.attrs["axis"]))
    owner = slices(scope, op, str(op.attrs["axis"]))
    if owner is not None:
        return Code(f"pick({x.text}, {owner}, dim={at}, at={op.attrs['at']})", x.reads)
    return Code(f"{x.within(ATOM)}[{':, ' * at}{op.attrs['at']}]", x.reads)


def slice_(scope: Scope, op: Op) -> Code:
    x, at = scope.code(op.inputs[0]), op.inputs[0].type.axes.index(str(op.attrs["axis"]))
    start, stop = op.attrs["start"], op.attrs["stop"]
    part = f"{start or ''}:{'' if stop is None else stop}"
    return Code(f"{x.within(ATOM)}[{':, ' * at}{part}]", x.reads)


def rename(scope: Scope, op: Op) -> Code:
    return scope.code(op.inputs[0])


def permute(scope: Scope, op: Op) -> Code:
    return permuted(scope.code(op.inputs[0]), op.inputs[0].type.axes, op.result.type.axes)


def _expanded(scope: Scope, op: Op, x: Code, have: Sequence[str], want: Sequence[str]) -> Code:
    x = aligned(x, have, want)
    sizes = [Code("-1") if axis in have else _local_size(scope, op, axis) for axis in want]
    made = method(x, f"expand({', '.join(size.text for size in sizes)})")
    return Code(made.text, reads_of([x, *sizes]))


def _local_size(scope: Scope, op: Op, axis: str) -> Code:
    part = slices(scope, op, axis)
    return scope.size(axis) if part is None else Code(f"{part}.size")


def expand(scope: Scope, op: Op) -> Code:
    value = op.inputs[0]
    return _expanded(scope, op, scope.code(value), value.type.axes, op.result.type.axes)


def concat(scope: Scope, op: Op) -> Code:
    want, along = op.result.type.axes, str(op.attrs["along"])
    parts: list[Code] = []
    for value, part in zip(op.inputs, axes_attr(op, "parts"), strict=True):
        have = tuple(along if axis == part else axis for axis in value.type.axes)
        x = scope.code(value)
        lacking = set(want) - set(have)
        parts.append(_expanded(scope, op, x, have, want) if lacking else permuted(x, have, want))
    text = f"torch.cat([{', '.join(p.text for p in parts)}], dim={want.index(along)})"
    return Code(text, reads_of(parts))


def rearrange(scope: Scope, op: Op) -> Code:
    x = scope.code(op.inputs[0])
    source, target = axes_attr(op, "source"), axes_attr(op, "target")
    sizes = {factor: _local_size(scope, op, factor) for factor in source}
    if len(source) != len(op.inputs[0].type.axes):
        x = scope.step(_reshaped(x, [sizes[factor] for factor in source]))
    x = permuted(x, source, target)
    if len(target) == len(op.result.type.axes):
        return x
    x = scope.step(x)
    merged: list[Code] = []
    for axis in op.result.type.axes:
        factors = scope.program.axes[base_axis(axis)].factors
        merged.append(Code(str(scope.extent(axis))) if factors else sizes[axis])
    return _reshaped(x, merged)


def _reshaped(x: Code, sizes: Sequence[Code]) -> Code:
    made = method(x, f"reshape({', '.join(size.text for size in sizes)})")
    return Code(made.text, reads_of([x, *sizes]))


Render = Callable[[Scope, Op], Code]
