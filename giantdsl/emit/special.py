"""Attention, experts, losses and Python operations in the forward pass."""

from __future__ import annotations

from giantdsl.attrs import Config
from giantdsl.emit.code import ATOM, Code, reads_of
from giantdsl.emit.layers import aligned, axes_attr
from giantdsl.emit.scope import Scope
from giantdsl.emit.slices import mesh_of, row_groups, slices
from giantdsl.ir.nodes import Op, Value
from giantdsl.ir.types import AxisKind, base_axis


def positions(scope: Scope, op: Op) -> Code:
    size = scope.size(str(op.attrs["axis"]))
    part = slices(scope, op, str(op.attrs["axis"]))
    if part is not None:
        return Code(f"{part}.index({scope.device})")
    device = f", device={scope.device}" if scope.device else ""
    return Code(f"torch.arange({size.text}{device})", size.reads)


def alibi(scope: Scope, op: Op) -> Code:
    s, t = scope.size(str(op.attrs["s"])), scope.size(str(op.attrs["t"]))
    heads = scope.extent(str(op.attrs["heads"]))
    where = "".join(
        f", {name}={part}"
        for name, axis in (("part", "heads"), ("queries", "s"))
        if (part := slices(scope, op, str(op.attrs[axis]))) is not None
    )
    return Code(f"alibi({heads}, {s.text}, {t.text}, {scope.device}{where})", reads_of([s, t]))


def sdpa(scope: Scope, op: Op) -> Code:
    codes = scope.codes(op.inputs)
    args = [code.text for code in codes[:3]]
    for name, default in (("causal", False), ("window", None), ("scale", None)):
        if op.attrs[name] != default or name in scope.static:
            args.append(f"{name}={scope.attr(op, name)}")
    given = dict(
        zip(axes_attr(op, "extras"), zip(codes[3:], op.inputs[3:], strict=True), strict=True)
    )
    for name in ("mask", "bias", "keep", "document"):
        if name in given:
            args.append(f"{name}={_extra(op, name, *given[name]).text}")
        elif name in scope.absent:
            args.append(f"{name}={scope.name_for(name)}")
    if op.site is not None:
        args += [f"dropout_p={op.attrs['dropout']!r}", f"noise=fold({scope.noise}, {op.site})"]
    args += _divided_attention(scope, op)
    return Code(f"attention({', '.join(args)})", reads_of(codes))


def _divided_attention(scope: Scope, op: Op) -> list[str]:
    """Which heads, which queries and which keys are here."""
    heads, kv = str(op.attrs["heads"]), str(op.attrs["kv"])
    made: list[str] = []
    part = slices(scope, op, heads)
    if part is not None:
        made.append(f"heads={part}")
        mesh = mesh_of(op, heads)[-1]
        if kv == heads or kv in scope.splits:
            made.append(f"kv={scope.slices(kv, mesh)}")
    queries = slices(scope, op, str(op.attrs["s"]))
    if queries is not None:
        made.append(f"queries={queries}")
    if op.attrs.get("ring"):
        made.append(f"keys={scope.slices(base_axis(str(op.attrs['t'])), 'cp')}")
    return made


def cached_sdpa(scope: Scope, op: Op) -> Code:
    codes = scope.codes(op.inputs)
    args = [code.text for code in codes]
    for name in ("window", "scale"):
        if op.attrs[name] is not None or name in scope.static:
            args.append(f"{name}={scope.attr(op, name)}")
    return Code(f"attend({', '.join(args)})", reads_of(codes))


def cached_positions(scope: Scope, op: Op) -> Code:
    cache = scope.code(op.inputs[0])
    size = scope.size(str(op.attrs["axis"]))
    text = f"{cache.text}.positions({size.text}, {scope.device})"
    return Code(text, reads_of([cache, size]))


def _extra(op: Op, name: str, code: Code, value: Value) -> Code:
    if name in ("keep", "document"):
        return aligned(code, value.type.axes, (*op.inputs[1].type.axes[:-3], str(op.attrs["t"])))
    s, t = str(op.attrs["s"]), str(op.attrs["t"])
    key = f"{t}'" if t == s and not t.endswith("'") else t
    want = (*op.inputs[0].type.axes[:-3], str(op.attrs["heads"]), s, key)
    return aligned(code, value.type.axes, want)


def rope(scope: Scope, op: Op) -> Code:
    codes = scope.codes(op.inputs)
    axes = op.inputs[0].type.axes
    at = axes.index(str(op.attrs["seq"])) - len(axes)
    args = [codes[0].text, f"dim={at}", f"theta={scope.attr(op, 'theta')}"]
    length = scope.extent(str(op.attrs["seq"]))
    if op.kind == "cached_rope":
        size = scope.size(str(op.attrs["seq"]))
        place = f"{codes[1].text}.positions({size.text}, {scope.device})"
        args += [f"position={place}", f"length={length}"]
        codes.append(size)
    elif len(codes) > 1:
        args += [f"position={codes[1].text}", f"length={length}"]
    elif (part := slices(scope, op, str(op.attrs["seq"]))) is not None:
        args += [f"position={part}.index({scope.device})", f"length={part}.whole"]
    scaling = op.attrs["scaling"]
    if isinstance(scaling, Config):
        args.append(f'scaling="{scaling.name}"')
        args += [f"{key}={value!r}" for key, value in scaling.kwargs]
    return Code(f"rope({', '.join(args)})", reads_of(codes))


def _last(x: Code, value: Value, axis: str) -> str:
    """x with `axis` last."""
    at = value.type.axes.index(axis)
    return x.text if at == len(value.type.axes) - 1 else f"{x.within(ATOM)}.movedim({at}, -1)"


def topk(scope: Scope, op: Op) -> Code:
    x = scope.code(op.inputs[0])
    probs = _last(x, op.inputs[0], str(op.attrs["over"]))
    return Code(f"topk({probs}, {op.attrs['k']}, renormalize={op.attrs['renormalize']})", x.reads)


def routed(scope: Scope, op: Op) -> Code:
    codes = scope.codes(op.inputs)
    capacity = op.attrs.get("capacity")
    given = [] if capacity is None else [f"capacity={capacity!r}"]
    if op.attrs.get("exchange"):
        given.append(f"ep={scope.group('ep')}")
    text = ", ".join([*(code.text for code in codes), *given])
    return Code(f"{op.kind}({text})", reads_of(codes))


def load_balance(scope: Scope, op: Op) -> Code:
    codes = scope.codes(op.inputs)
    probs = _last(codes[0], op.inputs[0], str(op.attrs["over"]))
    inner = [slices(scope, op, axis) for axis in op.inputs[1].type.axes]
    over = "".join(f", over={part}" for part in inner if part is not None)
    return Code(f"load_balance({probs}, {codes[1].text}{over})", reads_of(codes))


def cross_entropy(scope: Scope, op: Op) -> Code:
    codes = scope.codes(op.inputs)
    logits = _last(codes[0], op.inputs[0], str(op.attrs["over"]))
    args = [logits, codes[1].text, f"ignore={op.attrs['ignore']}"]
    if op.attrs["smooth"]:
        args.append(f"smooth={op.attrs['smooth']!r}")
    if op.attrs["extras"]:
        args.append(f"weight={codes[2].text}")
    args += _divided_loss(scope, op, str(op.attrs["over"]))
    return Code(f"cross_entropy({', '.join(args)})", reads_of(codes))


def z_loss(scope: Scope, op: Op) -> Code:
    x, over = scope.code(op.inputs[0]), str(op.attrs["over"])
    args = [_last(x, op.inputs[0], over), *_divided_loss(scope, op, over)]
    return Code(f"z_loss({', '.join(args)})", x.reads)


def _divided_loss(scope: Scope, op: Op, over: str) -> list[str]:
    """Where classes or rows are on several ranks, the loss reduces over them itself."""
    classes = slices(scope, op, over)
    rows = row_groups(scope, op, (over, *_batch_axes(scope, op)))
    made = [f"classes={classes}"] if classes is not None else []
    return [*made, *([f"over={rows}"] if rows else [])]


def _batch_axes(scope: Scope, op: Op) -> list[str]:
    kinds = {a: scope.program.axes[base_axis(a)].kind for a in op.inputs[0].type.axes}
    return [axis for axis, kind in kinds.items() if kind is AxisKind.BATCH]


def mse(scope: Scope, op: Op) -> Code:
    codes = scope.codes(op.inputs)
    rows = row_groups(scope, op, _batch_axes(scope, op))
    if rows:
        return Code(f"mse({codes[0].text}, {codes[1].text}, over={rows})", reads_of(codes))
    return Code(f"F.mse_loss({codes[0].text}, {codes[1].text})", reads_of(codes))


def extern(scope: Scope, op: Op) -> Code:
    codes = scope.codes(op.inputs)
    statics = op.attrs["statics"]
    assert isinstance(statics, Config)
    given = [f"{key}={value!r}" for key, value in statics.kwargs]
    text = ", ".join([*(code.text for code in codes), *given])
    return Code(f"{op.attrs['name']}({text})", reads_of(codes))
