"""What each kind of op must look like: docs/ir.md as a table of checks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from giantdsl.attrs import Attr, Config
from giantdsl.ir.nodes import Op, Program
from giantdsl.ir.types import BOOL, BUILTIN_DTYPES, FLOAT, ROUTE, AxisKind, base_axis

Axes = tuple[str, ...]
Problem = str | None


class View:
    """An op with its axes at hand; `want` collects the first thing that is not as it must be."""

    def __init__(self, program: Program, op: Op) -> None:
        self.program, self.op = program, op
        self.problem: Problem = None
        self.inputs = [v.type.axes for v in op.inputs]
        self.dtypes = [v.type.dtype for v in op.inputs]
        self.out = op.results[0].type.axes if op.results else ()

    def want(self, condition: bool, message: str) -> None:
        if not condition and self.problem is None:
            self.problem = message

    def attr(self, name: str) -> Attr:
        self.want(name in self.op.attrs, f"no attribute {name}")
        return self.op.attrs.get(name)

    def axis(self, name: str) -> str:
        value = self.attr(name)
        known = isinstance(value, str) and base_axis(value) in self.program.axes
        self.want(known, f"{name} is {value}")
        return value if isinstance(value, str) else ""

    def axes(self, name: str) -> Axes:
        value = self.attr(name)
        names = value if isinstance(value, tuple) else ()
        found = tuple(a for a in names if isinstance(a, str))
        self.want(isinstance(value, tuple) and len(found) == len(names), f"{name} is {value}")
        return found

    def number(self, name: str) -> float:
        value = self.attr(name)
        good = isinstance(value, int | float) and not isinstance(value, bool)
        self.want(good, f"{name} is {value}")
        return float(value) if isinstance(value, int | float) else 0.0

    def kind(self, axis: str) -> AxisKind | None:
        found = self.program.axes.get(base_axis(axis))
        return found.kind if found is not None else None

    def weight(self, role: str, axes: Axes) -> None:
        """The weight in this role is over these axes; a tied one may have them in other order."""
        use = self.op.weight(role)
        self.want(use is not None, f"no {role}")
        if use is not None:
            same = sorted(use.weight.axes) == sorted(axes) if use.tied else use.weight.axes == axes
            self.want(same, f"{role} is over {use.weight.axes}, not {axes}")

    def roles(self, *allowed: str) -> None:
        found = [use.role for use in self.op.weights]
        extra = [role for role in found if role not in allowed]
        self.want(not extra and len(set(found)) == len(found), f"weights {found}")

    def result(self, axes: Iterable[str], in_order: bool = True) -> None:
        wanted = tuple(axes)
        good = self.out == wanted if in_order else sorted(self.out) == sorted(wanted)
        self.want(good, f"the result is {self.out}, not {wanted}")

    def without(self, position: int, *gone: str) -> Axes:
        """Axes of an input that has `gone` among them, without these."""
        axes = self.inputs[position]
        self.want(set(gone) <= set(axes), f"{gone} are no axes of {axes}")
        return tuple(a for a in axes if a not in gone)


def check_op(program: Program, op: Op) -> Problem:
    """What is wrong with an op, or None."""
    rule = _RULES.get(op.kind)
    if rule is None:
        return "unknown kind"
    num_inputs, out_dtype, check = rule
    view = View(program, op)
    extras = op.attrs.get("extras", ())
    wanted = num_inputs + (len(extras) if isinstance(extras, tuple) else 0)
    if num_inputs >= 0:
        view.want(len(op.inputs) == wanted, f"{len(op.inputs)} inputs, not {wanted}")
    if op.kind != "extern":
        view.want(len(op.results) == 1, f"{len(op.results)} results")
    found = op.results[0].type.dtype if op.results else "nothing"
    if out_dtype:
        view.want(found == out_dtype, f"the result is {found}")
    if view.problem is None:
        check(view)
    return view.problem


def _linear(v: View) -> None:
    contracted, created, per = v.axes("contracted"), v.axes("created"), v.axes("per")
    square = v.attr("square") is True
    v.want(bool(contracted), "nothing is contracted")
    v.want((contracted == created) == square, f"square is {square}")
    v.want(all(v.kind(a) is AxisKind.FEATURE for a in (*contracted, *created)), "no features")
    v.want(set(per) <= set(v.inputs[0]) & set(v.out), f"{per} must pass through")
    v.result((*v.without(0, *contracted), *created), in_order=False)
    v.roles("weight", "bias")
    v.weight("weight", (*per, *created, *contracted))
    if v.op.weight("bias") is not None:
        v.weight("bias", (*per, *created))
    _random(v, None)


def _embedding(v: View) -> None:
    index, created = v.axis("index"), v.axes("created")
    v.want(v.dtypes[0] == index, f"the input indexes {v.dtypes[0]}")
    v.result((*v.inputs[0], *created), in_order=False)
    v.roles("weight")
    v.weight("weight", (index, *created))


def _per(v: View) -> Axes:
    use = v.op.weight("weight")
    return use.weight.per if use is not None else ()


def _norm(v: View) -> None:
    over = v.axis("over")
    v.number("eps")
    v.without(0, over)
    v.want(set(_per(v)) <= set(v.out), "per axes must pass through")
    v.result(v.inputs[0])
    v.roles("weight", "bias")
    v.weight("weight", (*_per(v), over))
    if v.op.weight("bias") is not None:
        v.weight("bias", (*_per(v), over))


def _param(v: View) -> None:
    v.roles("weight")
    v.weight("weight", v.out)


def _relative_bias(v: View) -> None:
    index, heads = v.axis("index"), v.axis("heads")
    v.result((heads, v.axis("s"), v.axis("t")))
    v.number("far")
    v.want(isinstance(v.attr("two_way"), bool), "two_way is no bool")
    v.roles("weight")
    v.weight("weight", (index, heads))


def _positions(v: View) -> None:
    v.result((v.axis("axis"),))
    v.want(v.op.result.type.dtype not in BUILTIN_DTYPES, "the result indexes nothing")


def _alibi(v: View) -> None:
    v.result((v.axis("heads"), v.axis("s"), v.axis("t")))


def _sdpa(v: View) -> None:
    s, t, heads, kv, c, e = (v.axis(name) for name in ("s", "t", "heads", "kv", "c", "e"))
    q, k, value = v.inputs[:3]
    v.want(q[-3:] == (s, heads, c), f"queries are {q}")
    v.want(k[-3:] == (t, kv, c), f"keys are {k}")
    v.want(value == (*k[:-1], e), f"values are {value}")
    v.want(q[:-3] == k[:-3], "queries and keys do not line up")
    v.result((*q[:-1], e))
    key = t + "'" if t == s and not t.endswith("'") else t
    for name, axes, dtype in zip(v.axes("extras"), v.inputs[3:], v.dtypes[3:], strict=True):
        full = (*q[:-3], heads, s, key)
        allowed = full if name in ("mask", "bias") else (*q[:-3], t)
        v.want(name in ("mask", "bias", "keep", "document"), f"an input called {name}")
        v.want(set(axes) <= set(allowed), f"{name} is {axes}")
        v.want((dtype == FLOAT) == (name == "bias"), f"{name} is {dtype}")
        v.want((dtype == BOOL) == (name in ("mask", "keep")), f"{name} is {dtype}")
    for name in ("causal", "window", "scale"):
        v.attr(name)
    _random(v, "dropout")


def _random(v: View, rate: str | None) -> None:
    """Only what draws random numbers has a site."""
    draws = rate is not None and v.number(rate) > 0
    v.want((v.op.site is not None) == draws, f"site is {v.op.site}")


def _rope(v: View) -> None:
    v.want(len(v.inputs) in (1, 2), f"{len(v.inputs)} inputs")
    seq, feature = v.axis("seq"), v.axis("feature")
    v.without(0, seq)
    v.want(v.inputs[0][-1:] == (feature,), f"{feature} is not the last axis")
    v.number("theta")
    scaling = v.attr("scaling")
    v.want(scaling is None or isinstance(scaling, Config), f"scaling is {scaling}")
    v.result(v.inputs[0])
    if len(v.inputs) == 2:
        v.want(set(v.inputs[1]) <= set(v.inputs[0]), f"positions are {v.inputs[1]}")


def _same(v: View) -> None:
    v.want(v.dtypes[0] == FLOAT, f"the input is {v.dtypes[0]}")
    v.result(v.inputs[0])


def _by(v: View) -> None:
    v.number("by")
    _same(v)


def _binary(v: View) -> None:
    a, b = v.inputs
    v.want(v.dtypes == [FLOAT, FLOAT], f"inputs are {v.dtypes}")
    v.want(set(a) <= set(b) or set(b) <= set(a), f"{a} and {b}: none has all axes")
    v.result(a if set(b) <= set(a) else b)


def _where(v: View) -> None:
    v.want(v.dtypes[0] == BOOL, f"the condition is {v.dtypes[0]}")
    v.want({v.dtypes[1], v.dtypes[2]} == {v.op.result.type.dtype}, f"inputs are {v.dtypes}")
    v.want(v.out in v.inputs, f"the result is {v.out}")
    v.want(all(set(axes) <= set(v.out) for axes in v.inputs), "the result lacks axes")


def _dropout(v: View) -> None:
    _random(v, "p")
    _same(v)


def _softmax(v: View) -> None:
    v.without(0, v.axis("over"))
    _same(v)


def _reduce(v: View) -> None:
    over = v.axes("over")
    v.want(bool(over), "over nothing")
    v.result(v.without(0, *over))


def _keeps_dtype(v: View) -> None:
    found = v.op.result.type.dtype
    v.want(all(d == found for d in v.dtypes), f"from {v.dtypes} to {found}")


def _pick(v: View) -> None:
    v.want(isinstance(v.attr("at"), int), "at is no int")
    v.result(v.without(0, v.axis("axis")))
    _keeps_dtype(v)


def _slice(v: View) -> None:
    start, stop = v.attr("start"), v.attr("stop")
    v.want(isinstance(start, int) and (stop is None or isinstance(stop, int)), "no whole numbers")
    _rename(v)


def _rename(v: View) -> None:
    axis, to = v.axis("axis"), v.axis("to")
    v.without(0, axis)
    v.result(to if a == axis else a for a in v.inputs[0])
    _keeps_dtype(v)


def _permute(v: View) -> None:
    v.result(v.inputs[0], in_order=False)
    v.want(v.out != v.inputs[0], "nothing moves")
    _keeps_dtype(v)


def _expand(v: View) -> None:
    v.want(set(v.inputs[0]) <= set(v.out), f"from {v.inputs[0]} to {v.out}")
    _keeps_dtype(v)


def _concat(v: View) -> None:
    along, parts = v.axis("along"), v.axes("parts")
    v.want(len(parts) == len(v.inputs) >= 2, f"{len(v.inputs)} inputs for {parts}")
    axis = v.program.axes.get(along)
    v.want(axis is not None and axis.terms == parts, f"{along} is no sum of {parts}")
    others = {a for i, part in enumerate(parts) for a in v.without(i, part)}
    v.result({along, *others}, in_order=False)
    _keeps_dtype(v)


def _rearrange(v: View) -> None:
    source, target = v.axes("source"), v.axes("target")
    v.want(Counter(source) == Counter(target), f"from {source} to {target}")
    v.want(_factors(v, v.inputs[0]) == source, f"{v.inputs[0]} is not made of {source}")
    v.want(_factors(v, v.out) == target, f"{v.out} is not made of {target}")
    _keeps_dtype(v)


def _factors(v: View, axes: Axes) -> Axes:
    found: list[str] = []
    for axis in axes:
        prime = "'" if axis.endswith("'") else ""
        factors = v.program.axes[base_axis(axis)].factors
        found += [f + prime for f in factors] or [axis]
    return tuple(found)


def _topk(v: View) -> None:
    v.number("k")
    v.want(isinstance(v.attr("renormalize"), bool), "renormalize is no bool")
    v.result(v.without(0, v.axis("over")))


def _dispatch(v: View) -> None:
    tokens = v.inputs[1]
    v.want(v.dtypes[1] == ROUTE, f"the route is {v.dtypes[1]}")
    v.result((v.axis("experts"), v.axis("slot"), *v.without(0, *tokens)))
    v.attr("capacity")


def _combine(v: View) -> None:
    v.want(v.dtypes[1] == ROUTE, f"the route is {v.dtypes[1]}")
    v.result((*v.inputs[1], *v.without(0, v.axis("experts"), v.axis("slot"))))


def _load_balance(v: View) -> None:
    v.number("k")
    v.want(v.dtypes[1] == ROUTE, f"the route is {v.dtypes[1]}")
    v.want(v.inputs[0] == (*v.inputs[1], v.axis("over")), "probabilities and route differ")
    v.result(())


def _cross_entropy(v: View) -> None:
    over = v.axis("over")
    rows = v.without(0, over)
    v.want(v.dtypes[1] == over, f"labels index {v.dtypes[1]}")
    v.want(all(axes == rows for axes in v.inputs[1:]), f"labels or weights are not {rows}")
    v.want(v.axes("extras") in ((), ("weight",)), "extras")
    v.number("smooth")
    v.number("ignore")
    v.result(())


def _z_loss(v: View) -> None:
    v.without(0, v.axis("over"))
    v.result(())


def _mse(v: View) -> None:
    v.want(v.inputs[0] == v.inputs[1], f"{v.inputs[0]} and {v.inputs[1]}")
    v.result(())


def _extern(v: View) -> None:
    name, statics = v.attr("name"), v.attr("statics")
    v.want(name in v.program.externs, f"there is no extern {name}")
    v.want(isinstance(statics, Config), f"statics are {statics}")
    v.want(bool(v.op.results), "no results")


def _conversion(v: View) -> None:
    v.want(v.attr("mesh") in ("cp", "tp"), f"mesh is {v.op.attrs.get('mesh')}")
    if v.op.kind in ("copy_to", "reduce_from"):
        v.want("axis" not in v.op.attrs, "an axis is not divided")
    else:
        v.without(0, v.axis("axis"))
    v.result(v.inputs[0])
    _keeps_dtype(v)


_GATHERS = ("all_gather", "gather_whole", "scatter", "reduce_scatter", "local")
_CONVERSIONS = ("copy_to", "reduce_from", *_GATHERS)
_UNARY = ("gelu", "gelu_tanh", "silu", "relu", "tanh", "sigmoid", "exp", "log", "sqrt")
_RULES: dict[str, tuple[int, str, Callable[[View], None]]] = {
    # number of inputs without extras (-1: any), dtype of the result ("": any), the rest
    "linear": (1, FLOAT, _linear),
    "embedding": (1, FLOAT, _embedding),
    "layernorm": (1, FLOAT, _norm),
    "rmsnorm": (1, FLOAT, _norm),
    "param": (0, FLOAT, _param),
    "relative_bias": (0, FLOAT, _relative_bias),
    "positions": (0, "", _positions),
    "alibi": (0, FLOAT, _alibi),
    "sdpa": (3, FLOAT, _sdpa),
    "rope": (-1, FLOAT, _rope),
    **dict.fromkeys(_UNARY, (1, FLOAT, _same)),
    **dict.fromkeys(("softcap", "scale", "shift", "power", "rdiv"), (1, FLOAT, _by)),
    **dict.fromkeys(("add", "sub", "mul", "div"), (2, FLOAT, _binary)),
    "where": (3, "", _where),
    "dropout": (1, FLOAT, _dropout),
    "softmax": (1, FLOAT, _softmax),
    **dict.fromkeys(("mean", "sum", "max"), (1, FLOAT, _reduce)),
    "pick": (1, "", _pick),
    "slice": (1, "", _slice),
    "rename": (1, "", _rename),
    "permute": (1, "", _permute),
    "expand": (1, "", _expand),
    "concat": (-1, "", _concat),
    "rearrange": (1, "", _rearrange),
    "topk": (1, ROUTE, _topk),
    "dispatch": (2, FLOAT, _dispatch),
    "combine": (2, FLOAT, _combine),
    "load_balance": (2, FLOAT, _load_balance),
    "cross_entropy": (2, FLOAT, _cross_entropy),
    "z_loss": (1, FLOAT, _z_loss),
    "mse": (2, FLOAT, _mse),
    "extern": (-1, "", _extern),
    **dict.fromkeys(_CONVERSIONS, (1, "", _conversion)),
}
