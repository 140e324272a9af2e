"""Attention and what tells it where tokens are."""

from __future__ import annotations

from giantdsl.attrs import Attr, Config
from giantdsl.ir.nodes import Value
from giantdsl.ir.types import BOOL, FLOAT, AxisKind, base_axis
from giantdsl.sema.builtins.base import (
    Builtin,
    batch_in_front,
    feature_axes,
    lacks_batch,
    needs_size,
)
from giantdsl.sema.scope import Sem, shape
from giantdsl.sema.signature import BuiltinCall, Param, Signature, permute

ROPE_SCALINGS = {
    "llama3": ("factor", "low", "high", "context"),
    "yarn": ("factor", "context", "fast", "slow"),
    "linear": ("factor",),
}
_ROPE_DEFAULTS: dict[str, Attr] = {"fast": 32, "slow": 1}


def _sdpa(call: BuiltinCall) -> Sem:
    q, k, v = (call.tensor(name) for name in "qkv")
    roles = _roles(call, q, k, v)
    if not isinstance(roles, dict):
        return roles
    extras = _extras(call, q, roles)
    if not isinstance(extras, dict):
        return extras
    wrong = _wrong_number(call)
    if wrong is not None:
        return wrong
    lead, p = q.type.axes[:-3], float(call.number("dropout"))
    if p > 0:
        lacks = lacks_batch(call, "q")
        if lacks is not None:
            return lacks
        lead = batch_in_front(call.tables, lead)
    inputs = [
        permute(call.tables, call.frame, value, (*lead, *value.type.axes[-3:]), call.span)
        for value in (q, k, v)
    ]
    attrs: dict[str, Attr] = {
        **roles,
        "extras": tuple(extras),
        "causal": call.attr("causal"),
        "window": call.attr("window"),
        "scale": call.attr("scale"),
        "dropout": p,
    }
    axes = (*lead, *(str(roles[role]) for role in ("s", "heads", "e")))
    return call.emit("sdpa", [*inputs, *extras.values()], axes, attrs, draws=p > 0)


def _extras(call: BuiltinCall, q: Value, roles: dict[str, Attr]) -> dict[str, Value] | Sem:
    """The tensors that say what is seen, by the names of their arguments."""
    s, t, heads = (str(roles[role]) for role in ("s", "t", "heads"))
    key = t + "'" if t == s and not t.endswith("'") else t
    lead = q.type.axes[:-3]
    allowed: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
        "mask": ((*lead, heads, s, key), (BOOL,)),
        "bias": ((*lead, heads, s, key), (FLOAT,)),
        "keep": ((*lead, t), (BOOL,)),
        "document": ((*lead, t), ()),
    }
    found: dict[str, Value] = {}
    for name, (axes, dtypes) in allowed.items():
        value = call.args.get(name)
        if not isinstance(value, Value):
            continue
        foreign = [a for a in value.type.axes if a not in axes]
        wrong = value.type.dtype not in dtypes if dtypes else value.type.dtype in (FLOAT, BOOL)
        if foreign or wrong:
            holds = "truths" if BOOL in dtypes else "floats" if FLOAT in dtypes else "numbers"
            wanted = ": bool" if BOOL in dtypes else "" if FLOAT in dtypes else ": int"
            return call.fail(
                "G222",
                f"`{name}` of `sdpa` is over {shape(axes)}{wanted}",
                f"this is {value.type}",
                f"use axes among {shape(axes)}" if foreign else f"it holds {holds}",
                call.span_of(name),
            )
        if name in ("keep", "document") and t not in value.type.axes:
            return call.fail(
                "G222",
                f"`{name}` of `sdpa` goes along the keys, `{t}`",
                f"this is {value.type}",
                span=call.span_of(name),
            )
        found[name] = value
    return found


def _wrong_number(call: BuiltinCall) -> Sem | None:
    """A `dropout` that is no share, or a `window` without a key."""
    p, window = float(call.number("dropout")), call.attr("window")
    if not 0.0 <= p < 1.0:
        return call.fail(
            "G203",
            "dropout is a share from 0 up to 1",
            f"this is {p:g}",
            span=call.span_of("dropout"),
        )
    if isinstance(window, int) and window < 1:
        return call.fail(
            "G203",
            "`window` of `sdpa` counts keys, at least 1",
            f"this is {window}",
            "leave it out, or use none, to see all keys",
            call.span_of("window"),
        )
    return None


def _roles(call: BuiltinCall, q: Value, k: Value, v: Value) -> dict[str, Attr] | Sem:
    """The axes by role, read from the right: [.., seq, heads, features]."""
    tables = call.tables
    for name, value in (("q", q), ("k", k), ("v", v)):
        if len(value.type.axes) < 3 or value.type.dtype != FLOAT:
            return call.fail(
                "G222",
                "`sdpa` takes [.., seq, heads, features]",
                f"`{name}` is {value.type}",
                span=call.span_of(name),
            )
    s, heads, c = q.type.axes[-3:]
    t, kv, c2 = k.type.axes[-3:]
    t2, kv2, e = v.type.axes[-3:]
    for name, axis in (("q", s), ("k", t)):
        if tables.kind(axis) is not AxisKind.SEQ:
            return call.fail(
                "G222",
                "`sdpa` takes [.., seq, heads, features]",
                f"`{name}` is {q.type if name == 'q' else k.type}: `{axis}` is no sequence axis",
                span=call.span_of(name),
            )
    if c != c2:
        return call.fail(
            "G222", f"queries and keys meet in `{c}` and `{c2}`", f"{q.type} and {k.type}"
        )
    if (t, kv) != (t2, kv2) or set(k.type.axes[:-3]) != set(v.type.axes[:-3]):
        return call.fail(
            "G222",
            f"keys {k.type} and values {v.type} do not line up",
            "all axes but the last must be the same",
        )
    if set(q.type.axes[:-3]) != set(k.type.axes[:-3]):
        return call.fail(
            "G222",
            f"queries {q.type} and keys {k.type} do not line up",
            "the axes before [seq, heads, features] must be the same",
        )
    num_heads, num_kv = tables.size(heads) or 1, tables.size(kv) or 1
    if num_heads % num_kv:
        return call.fail(
            "G222",
            "query heads do not divide among key heads",
            f"{heads} = {num_heads}, {kv} = {num_kv}",
            f"`{heads}` must be a multiple of `{kv}`",
        )
    return {"s": s, "t": t, "heads": heads, "kv": kv, "c": c, "e": e}


def _rope(call: BuiltinCall) -> Sem:
    x = call.tensor("x")
    seqs = [a for a in x.type.axes if call.tables.kind(a) is AxisKind.SEQ]
    features = feature_axes(call.tables, x.type.axes)
    if len(seqs) != 1 or not features or x.type.axes[-1] != features[-1]:
        return call.fail(
            "G222",
            "`rope` takes [.., seq, .., features] with one sequence axis",
            f"this is {x.type}",
            span=call.span_of("x"),
        )
    feature = features[-1]
    if (call.tables.size(feature) or 0) % 2:
        size = call.tables.size(feature)
        return call.fail(
            "G222", f"`rope` turns pairs of `{feature}`", f"`{feature}` is {size}, odd"
        )
    theta = float(call.number("theta"))
    if theta <= 0:
        return call.fail(
            "G203", "`theta` of `rope` is above 0", f"this is {theta:g}", span=call.span_of("theta")
        )
    scaling = call.args.get("scaling")
    if isinstance(scaling, Config):
        filled = _scaling(call, scaling)
        if not isinstance(filled, Config):
            return filled
        scaling = filled
    inputs = [x]
    position = call.args.get("position")
    if isinstance(position, Value):
        lacking = [a for a in position.type.axes if a not in x.type.axes]
        if lacking or seqs[0] not in position.type.axes or position.type.dtype in (FLOAT, BOOL):
            return call.fail(
                "G222",
                f"`position` of `rope` counts along `{seqs[0]}`",
                f"this is {position.type}",
                span=call.span_of("position"),
            )
        inputs.append(position)
    attrs: dict[str, Attr] = {
        "seq": seqs[0],
        "feature": feature,
        "theta": theta,
        "scaling": scaling if isinstance(scaling, Config) else None,
    }
    return call.emit("rope", inputs, x.type.axes, attrs)


def _scaling(call: BuiltinCall, scaling: Config) -> Config | Sem:
    names = ROPE_SCALINGS.get(scaling.name)
    span = call.span_of("scaling")
    if names is None:
        known = ", ".join(ROPE_SCALINGS)
        return call.fail(
            "G218", f"no rope scaling `{scaling.name}`", "unknown", f"known: {known}", span
        )
    given = dict(zip(names, scaling.args, strict=False)) | dict(scaling.kwargs)
    values = {name: given.get(name, _ROPE_DEFAULTS.get(name)) for name in names}
    lacking = [n for n, v in values.items() if not isinstance(v, int | float)]
    unknown = [n for n in given if n not in names]
    if lacking or unknown or len(scaling.args) > len(names):
        what = f"`{scaling.name}` takes {', '.join(names)}"
        wrong = f"{len(scaling.args)} given"
        if lacking or unknown:
            wrong = f"`{(unknown or lacking)[0]}` is {'unknown' if unknown else 'missing'}"
        return call.fail("G207", what, wrong, None, span)
    low = [n for n, v in values.items() if isinstance(v, int | float) and v <= 0]
    if low:
        wrong = f"`{low[0]}` is {values[low[0]]}"
        return call.fail("G203", f"`{scaling.name}` takes numbers above 0", wrong, None, span)
    for small, large in (("low", "high"), ("slow", "fast")):
        a, b = values.get(small), values.get(large)
        if isinstance(a, int | float) and isinstance(b, int | float) and a >= b:
            wrong = f"{small} = {a}, {large} = {b}"
            what = f"`{small}` of `{scaling.name}` is below `{large}`"
            return call.fail("G203", what, wrong, None, span)
    return Config(scaling.name, (), tuple(values.items()))


def _positions(call: BuiltinCall) -> Sem:
    axis = call.axis("axis")
    if call.tables.kind(axis) is not AxisKind.SEQ:
        kind = call.tables.kind_word(axis)
        return call.fail(
            "G222",
            "`positions` counts along a sequence axis",
            f"`{axis}` is a {kind} axis",
            span=call.span_of("axis"),
        )
    into = call.axis("into") if call.given("into") else base_axis(axis)
    wrong = needs_size(call, "into", into)
    if wrong is not None:
        return wrong
    return call.emit("positions", [], (axis,), {"axis": axis}, dtype=into)


def _alibi(call: BuiltinCall) -> Sem:
    assert call.axes is not None
    seqs = [a for a in call.axes if call.tables.kind(a) is AxisKind.SEQ]
    features = feature_axes(call.tables, call.axes)
    if len(call.axes) != 3 or len(seqs) != 2 or len(features) != 1:
        return call.fail(
            "G222",
            "`alibi` makes [heads, queries, keys]",
            f"this is {shape(call.axes)}",
            "one feature axis and two sequence axes, as in `-> [heads, s, s']`",
            call.axes_span,
        )
    heads, s, t = features[0], seqs[0], seqs[1]
    return call.emit("alibi", [], (heads, s, t), {"heads": heads, "s": s, "t": t})


ATTENTION = (
    Builtin(
        Signature(
            "sdpa",
            (
                Param("q", "tensor"),
                Param("k", "tensor"),
                Param("v", "tensor"),
                Param("causal", "bool", False),
                Param("window", "int?", None),
                Param("scale", "number?", None),
                Param("dropout", "number", 0),
                Param("mask", "tensor?", None),
                Param("bias", "tensor?", None),
                Param("keep", "tensor?", None),
                Param("document", "tensor?", None),
            ),
        ),
        _sdpa,
    ),
    Builtin(
        Signature(
            "rope",
            (
                Param("x", "tensor"),
                Param("theta", "number", 10000),
                Param("scaling", "config?", None),
                Param("position", "tensor?", None),
            ),
        ),
        _rope,
    ),
    Builtin(
        Signature("positions", (Param("axis", "axis"), Param("into", "axis?", None))), _positions
    ),
    Builtin(Signature("alibi", (), result="required"), _alibi),
)
