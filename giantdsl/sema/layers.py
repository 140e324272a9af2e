"""Layers: their names, their weights, ties between them."""

from __future__ import annotations

from collections.abc import Mapping

from giantdsl.attrs import Attr, Config
from giantdsl.diagnostics import Diagnostic, Label, did_you_mean
from giantdsl.ir.nodes import Call, Init, Op, Weight, WeightUse
from giantdsl.ir.parameters import join
from giantdsl.sema.scope import Frame, LayerUse, OwnedLayer, Tables, shape
from giantdsl.source import Span
from giantdsl.syntax import ast

# Each with the name of its number, if it takes one.
INITS = {"normal": "std", "uniform": "a", "zeros": "", "ones": "", "xavier": "", "kaiming": ""}


def register_layer(tables: Tables, frame: Frame, name: str, span: Span) -> None:
    """Take a layer name in this function; two equal names are G204."""
    use = frame.layers.get(name)
    if use is None:
        frame.layers[name] = LayerUse(frame.loop, {frame.indices: span})
        return
    first = next(iter(use.places.values()))
    if use.loop == frame.loop:
        first = use.places.setdefault(frame.indices, span)
    if first == span:
        return
    where = "in `forward`" if frame.is_forward else f"in block `{frame.name}`"
    tables.sink.add(
        Diagnostic(
            "G204",
            f"two layers named `{name}` {where}",
            Label(span, f"second `{name}`"),
            f"name them apart: `… as {name}1` and `… as {name}2`",
            (Label(first, f"first `{name}`"),),
        )
    )


def parse_init(tables: Tables, config: Config, span: Span) -> Init:
    """`normal(0.02)`, `uniform(a)`, `zeros`, `ones`, `xavier`, `kaiming`."""
    name = config.name
    if name not in INITS:
        known = did_you_mean(name, INITS, f"known: {', '.join(INITS)}")
        tables.sink.add(
            Diagnostic("G218", f"no initial value `{name}`", Label(span, "unknown"), known)
        )
        return Init("constant")
    wanted = INITS[name]
    values = [*config.args, *(v for k, v in config.kwargs if k == wanted)]
    numbers = [v for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
    given = len(config.args) + len(config.kwargs)
    good = given == len(values) == len(numbers) == (1 if wanted else 0)
    if not good or any(number < 0 for number in numbers):
        takes = f"{name}({wanted})`, `{wanted}` a number of at least 0" if wanted else f"{name}`"
        tables.sink.add(
            Diagnostic("G218", f"`{name}` is written `{takes}", Label(span, "not like this"))
        )
        return Init("constant")
    if name in ("zeros", "ones"):
        return Init("constant", 1.0 if name == "ones" else 0.0)
    return Init(name, float(numbers[0]) if numbers else 0.0)


class LayerBuilder:
    """Makes the weights of one layer of a function.

    `options` are the arguments every weighted builtin takes: init, lr, decay, dtype, tie, per.
    """

    def __init__(
        self,
        tables: Tables,
        frame: Frame,
        name: str,
        options: Mapping[str, Attr],
        tie: ast.Path | None,
        per: tuple[str, ...],
        span: Span,
        init_span: Span,
    ) -> None:
        self.tables, self.frame, self.name, self.options = tables, frame, name, options
        self.tie, self.span, self.init_span = tie, span, init_span
        self.per = (*frame.per, *per)
        self._made: dict[str, Weight] = {}

    def weight(
        self,
        out_axes: tuple[str, ...],
        in_axes: tuple[str, ...],
        *,
        table: bool = False,
        default_init: Init,
        leaf: str = "weight",
    ) -> WeightUse | None:
        """The layer's main weight, its own or a tied one; None after a report.

        `table`: the in axes come first in memory, as an embedding has them.
        """
        axes = (*in_axes, *out_axes) if table else (*out_axes, *in_axes)
        axes = (*self.per, *axes)
        if self.tie is not None:
            return self._tied(axes)
        config = self.options.get("init")
        init = default_init
        if isinstance(config, Config):
            init = parse_init(self.tables, config, self.init_span)
        return self._own("weight", leaf, axes, out_axes, in_axes, init)

    def set_init(self, weight: Weight) -> None:
        """Let `init=` decide how a weight starts that has a fixed start by default."""
        config = self.options.get("init")
        if isinstance(config, Config):
            weight.init = parse_init(self.tables, config, self.init_span)

    def gain(self, over: str, init: float, role: str) -> WeightUse:
        return self._own(role, role, (*self.per, over), (over,), (), Init("constant", init))

    def bias(self, axes: tuple[str, ...]) -> WeightUse:
        """A bias over the created axes, starting at zero."""
        return self._own("bias", "bias", (*self.per, *axes), axes, (), Init("constant", 0.0))

    def _own(
        self,
        role: str,
        leaf: str,
        axes: tuple[str, ...],
        out_axes: tuple[str, ...],
        in_axes: tuple[str, ...],
        init: Init,
    ) -> WeightUse:
        lr, decay, dtype = (self.options.get(k) for k in ("lr", "decay", "dtype"))
        weight = Weight(
            member=self.name,
            leaf=leaf,
            axes=axes,
            per=self.per,
            out_axes=out_axes,
            in_axes=in_axes,
            init=init,
            lr=float(lr) if isinstance(lr, int | float) else 1.0,
            decay=decay if isinstance(decay, bool) else None,
            dtype=dtype.name if isinstance(dtype, Config) else None,
            span=self.span,
        )
        if not self._made:
            register_layer(self.tables, self.frame, self.name, self.span)
        self._made[role] = weight
        self.frame.owned[self.name] = OwnedLayer(self.frame.loop, dict(self._made))
        return WeightUse(role, weight)

    def _tied(self, axes: tuple[str, ...]) -> WeightUse | None:
        assert self.tie is not None
        found = find_layer(self.tables, self.frame, self.tie)
        if found is None:
            return None
        owner, path = found
        weight = owner.weights.get("weight")
        if weight is None or sorted(weight.axes) != sorted(axes):
            name = join(self.frame.path, self.tie.text, "weight")
            have = shape(weight.axes) if weight else "nothing"
            self.tables.sink.add(
                Diagnostic(
                    "G219",
                    f"cannot tie to `{name}`",
                    Label(
                        self.span,
                        f"this needs a weight over {shape(axes)}, `{name}` is over {have}",
                    ),
                    "tie layers whose weights have the same axes",
                )
            )
            return None
        return WeightUse("weight", weight, tied=True, path=path)


def find_layer(
    tables: Tables, frame: Frame, tie: ast.Path
) -> tuple[OwnedLayer, tuple[tuple[str, tuple[int, ...]], ...]] | None:
    """The layer `tie=` names: in this function, or inside a block it has already used."""
    *steps, last = [part.text for part in tie.parts]
    if tie.parts[0].text in frame.failed_layers:
        return None
    owned, callees = frame.owned, frame.callees
    path: list[tuple[str, tuple[int, ...]]] = []
    for step in steps:
        entry = callees.get(step)
        if entry is None or _outside(entry[0], frame.loop):
            tables.sink.add(_no_layer(tie, callees, entry is not None))
            return None
        call: Call = entry[1]
        path.append((step, ()))
        owned, callees = _layers_of(call)
    layer = owned.get(last)
    if layer is None or (not steps and _outside(layer.loop, frame.loop)):
        tables.sink.add(_no_layer(tie, owned, layer is not None))
        return None
    return layer, tuple(path)


def _outside(owner: tuple[int, ...], use: tuple[int, ...]) -> bool:
    """Whether the owner stands in a loop that does not enclose the use."""
    return owner != use[: len(owner)]


def _layers_of(
    call: Call,
) -> tuple[dict[str, OwnedLayer], dict[str, tuple[tuple[int, ...], Call]]]:
    owned: dict[str, OwnedLayer] = {}
    callees: dict[str, tuple[tuple[int, ...], Call]] = {}
    for statement in call.function.statements:
        if isinstance(statement, Call):
            callees[statement.member] = ((), statement)
        elif isinstance(statement, Op):
            mine = {use.role: use.weight for use in statement.weights if not use.tied}
            if mine:
                owned[statement.layer] = OwnedLayer((), mine)
    return owned, callees


def _no_layer(tie: ast.Path, known: Mapping[str, object], in_loop: bool) -> Diagnostic:
    if in_loop:
        return Diagnostic(
            "G219",
            f"cannot tie to `{tie.text}`",
            Label(tie.span, "this layer is inside a `repeat`"),
            "there is one of it for each iteration; tie inside the same loop, or move it out",
        )
    return Diagnostic(
        "G219",
        f"no layer `{tie.text}` to tie to",
        Label(tie.span, "not a layer above this line"),
        did_you_mean(tie.text, known, "name a layer that is written before this one"),
    )
