"""Plans that cannot be: found before anything is generated (language.md 3.5 and 2.12)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from giantdsl.attrs import Attr
from giantdsl.diagnostics import Diagnostic, Label, Severity, Sink, nearest
from giantdsl.ir.nodes import Op, Program, Repeat, StageMark, statements_of
from giantdsl.ir.types import AxisKind, base_axis
from giantdsl.passes.layout import MESH_AXES, Rules, rules_of
from giantdsl.passes.stage_legality import check_crossings, check_empty, check_marks
from giantdsl.passes.stages import count_stages, num_units, uses_marks
from giantdsl.settings.origins import Origins
from giantdsl.settings.values import ParallelSettings, Settings
from giantdsl.source import Span


def check_plan(program: Program, settings: Settings, origins: Origins, sink: Sink) -> None:
    """Report every way in which the `parallel` section cannot be carried out."""
    parallel = settings.parallel
    if parallel is None:
        return
    train = settings.train
    optimizer = train.optimizer.name if train is not None else ""
    checker = _Checker(program, parallel, origins, sink, optimizer)
    if not checker.names_are_known():
        return
    checker.lists()
    if not sink.has_errors:
        checker.operations()
        checker.written_layouts()
    checker.stages()


class _Checker:
    def __init__(
        self,
        program: Program,
        parallel: ParallelSettings,
        origins: Origins,
        sink: Sink,
        optimizer: str,
    ) -> None:
        self.program, self.parallel, self.optimizer = program, parallel, optimizer
        self.origins, self.sink = origins, sink
        self.rules: Rules = rules_of(program, parallel)
        self.places = {
            (rule.mesh_axis, axis): span
            for rule, places in zip(parallel.shard, origins.shard, strict=True)
            for axis, span in zip(rule.axes, places.axes, strict=True)
        }
        for rule, places in zip(parallel.shard, origins.shard, strict=True):
            if rule.otherwise is not None and places.otherwise is not None:
                self.places.setdefault((rule.mesh_axis, rule.otherwise), places.otherwise)

    def add(
        self,
        code: str,
        message: str,
        span: Span,
        label: str,
        help: str | None = None,
        others: tuple[Label | None, ...] = (),
        severity: Severity = Severity.ERROR,
    ) -> None:
        labels = tuple(other for other in others if other is not None)
        self.sink.add(
            Diagnostic(code, message, Label(span, label), help, labels, severity=severity)
        )

    def _report(self, found: Iterable[Diagnostic]) -> None:
        for diagnostic in found:
            self.sink.add(diagnostic)

    def mesh_label(self, mesh_axis: str, text: str | None = None) -> Label | None:
        span = self.origins.setting(f"parallel.{mesh_axis}")
        if span is None:
            return None
        return Label(span, text or f"{mesh_axis} = {self.rules.sizes[mesh_axis]}")

    def split_label(self, mesh_axis: str, axis: str) -> Label | None:
        span = self.places.get((mesh_axis, axis))
        return None if span is None else Label(span, "split here")

    # ---- shard lines ----------------------------------------------------------------------

    def names_are_known(self) -> bool:
        good = True
        for rule, places in zip(self.parallel.shard, self.origins.shard, strict=True):
            if rule.mesh_axis not in (*MESH_AXES, "pp"):
                near = nearest(rule.mesh_axis, MESH_AXES)
                help = f"did you mean `{near}`?" if near else f"the mesh has {', '.join(MESH_AXES)}"
                message = f"no mesh axis `{rule.mesh_axis}`"
                self.add("G301", message, places.mesh_axis, "not a mesh axis", help)
                good = False
            elif rule.mesh_axis in ("pp", "dp"):
                what = "stages" if rule.mesh_axis == "pp" else "the batch, always"
                message = f"`{rule.mesh_axis}` splits {what}"
                help = "axes are listed for tp, cp and ep"
                self.add("G301", message, places.mesh_axis, "not for axes", help)
                good = False
            spans = zip(rule.axes, places.axes, strict=True)
            named = [*spans, *([(rule.otherwise, places.otherwise)] if rule.otherwise else [])]
            for axis, span in named:
                if axis is not None and span is not None and axis not in self.program.axes:
                    near = nearest(axis, self.program.axes)
                    help = f"did you mean `{near}`?" if near else "declare its size in `dims`"
                    self.add("G101", f"no axis `{axis}`", span, "not declared in `dims`", help)
                    good = False
        return good

    def lists(self) -> None:
        self._twice()
        self._kinds()
        self._sizes()
        for mesh_axis, example in (("tp", "heads, ff, vocab"), ("cp", self._sequence())):
            place = self.origins.setting(f"parallel.{mesh_axis}")
            size = self.rules.sizes[mesh_axis]
            if size > 1 and not self.rules.listed[mesh_axis] and place is not None:
                help = f"say what to split: `shard {example} on {mesh_axis}`"
                text = f"{size} ranks would do the same work"
                self.add("G305", f"nothing is split over {mesh_axis}", place, text, help)

    def _sequence(self) -> str:
        axes = self.program.axes.values()
        return next((a.name for a in axes if a.kind is AxisKind.SEQ), "s")

    def _twice(self) -> None:
        seen: dict[str, tuple[str, Span]] = {}
        for rule, places in zip(self.parallel.shard, self.origins.shard, strict=True):
            named = list(zip(rule.axes, places.axes, strict=True))
            if rule.otherwise is not None and places.otherwise is not None:
                named.append((rule.otherwise, places.otherwise))
            for axis, span in named:
                kind = self.program.axes[axis].kind
                first = seen.setdefault(axis, (rule.mesh_axis, span))
                if first[1] is span or kind is not AxisKind.FEATURE:
                    continue
                message = (
                    f"`{axis}` is listed twice on {rule.mesh_axis}"
                    if first[0] == rule.mesh_axis
                    else f"`{axis}` is split over both {first[0]} and {rule.mesh_axis}"
                )
                others = (Label(first[1], "first here"),)
                self.add(
                    "G303", message, span, "again here", "one place for each feature axis", others
                )

    def _kinds(self) -> None:
        for rule, places in zip(self.parallel.shard, self.origins.shard, strict=True):
            kinds = [self.program.axes[axis].kind for axis in rule.axes]
            for i, (axis, span) in enumerate(zip(rule.axes, places.axes, strict=True)):
                if kinds[i] is AxisKind.RAGGED:
                    message = f"the ragged axis `{axis}` cannot be listed"
                    help = "tokens go where their experts are: `shard experts on ep`"
                    self.add("G316", message, span, "as long as the router makes it", help)
                elif kinds[i] is AxisKind.BATCH:
                    message = f"the batch axis `{axis}` is split over dp and ep, always"
                    self.add(
                        "G316", message, span, "not to be listed", f"take `{axis}` off the list"
                    )
                elif kinds[i] is AxisKind.SEQ and rule.mesh_axis == "tp":
                    later = [
                        a for a, k in zip(rule.axes, kinds, strict=True) if k is AxisKind.FEATURE
                    ]
                    message = f"the sequence axis `{axis}` is on the tp list"
                    if i < len(rule.axes) - 1 and later:
                        message = f"`{axis}` comes before `{rule.axes[i + 1]}` on the tp list"
                    help = f"use `else {axis}`: listed, `{axis}` would win wherever nothing before it is"
                    self.add("G304", message, span, "a sequence axis", help)

    def _sizes(self) -> None:
        for rule, places in zip(self.parallel.shard, self.origins.shard, strict=True):
            size = self.rules.sizes.get(rule.mesh_axis, 1)
            named = list(zip(rule.axes, places.axes, strict=True))
            if rule.otherwise is not None and places.otherwise is not None:
                named.append((rule.otherwise, places.otherwise))
            for axis, span in named:
                entries = self.program.axes[axis].size
                if size <= 1 or entries is None or entries % size == 0:
                    continue
                label = f"{entries} entries over {rule.mesh_axis} = {size}"
                message = f"`{axis}` does not divide by {rule.mesh_axis}"
                help = self._size_help(axis, entries, rule.mesh_axis)
                self.add("G302", message, span, label, help, (self.mesh_label(rule.mesh_axis),))

    def _size_help(self, axis: str, entries: int, mesh_axis: str) -> str:
        for op in self._ops():
            keys = op.kind == "sdpa" and op.attrs["kv"] == axis and op.attrs["heads"] != axis
            if keys:
                return (
                    f"take `{axis}` off the list: every {mesh_axis} rank then keeps all "
                    f"{entries} key heads"
                )
        if entries > 1000 and self.program.axes[axis].kind is AxisKind.FEATURE:
            return f"pad it: `{axis} = pad({entries}, 128)`"
        sizes = ", ".join(str(n) for n in range(1, min(entries, 1024) + 1) if entries % n == 0)
        return f"{mesh_axis} can be {sizes}; or take `{axis}` off the list"

    # ---- operations -----------------------------------------------------------------------

    def _ops(self) -> Iterator[Op]:
        for function in self.program.functions:
            for statement in statements_of(function):
                if isinstance(statement, Op):
                    yield statement

    def operations(self) -> None:
        """The operations that cannot be split as the lists say: one report for each cause."""
        reported: set[tuple[str, str]] = set()
        for op in self._ops():
            for mesh_axis in MESH_AXES:
                axis = self.rules.split(mesh_axis, op, self.program)
                if axis is None or (mesh_axis, axis) in reported:
                    continue
                before = len(self.sink.diagnostics)
                self._operation(op, mesh_axis, axis)
                if len(self.sink.diagnostics) > before:
                    reported.add((mesh_axis, axis))
        self._whole_attention()

    def _operation(self, op: Op, mesh_axis: str, axis: str) -> None:
        checks: dict[str, Callable[[Op, str, str], None]] = {
            "linear": self._linear,
            "sdpa": self._sdpa,
            "rearrange": self._rearrange,
            "dispatch": self._dispatch,
            "extern": self._extern,
        }
        whole = {
            "softmax": "over",
            "layernorm": "over",
            "rmsnorm": "over",
            "topk": "over",
            "load_balance": "over",
            "rope": "feature",
        }
        if (op.kind in whole and op.attrs[whole[op.kind]] == axis) or (
            op.kind == "max" and axis in _names(op.attrs["over"])
        ):
            self._needs_whole(op, mesh_axis, axis)
        elif op.kind == "concat" and op.attrs["along"] == axis:
            self._no_cut(op, mesh_axis, axis, "concat")
        elif op.kind == "slice" and op.attrs["axis"] == axis:
            self._no_cut(op, mesh_axis, axis, "a slice")
        elif op.kind in checks:
            checks[op.kind](op, mesh_axis, axis)

    def _needs_whole(self, op: Op, mesh_axis: str, axis: str) -> None:
        self.add(
            "G311",
            f"`{op.kind}` runs over `{axis}`, which is split over {mesh_axis}",
            op.span,
            f"needs all of `{axis}`",
            f"take `{axis}` off the `shard` line; {op.kind} needs it whole",
            (self.split_label(mesh_axis, axis),),
        )

    def _no_cut(self, op: Op, mesh_axis: str, axis: str, what: str) -> None:
        name = f"`{what}`" if what == "concat" else what
        self.add(
            "G313",
            f"{name} along `{axis}`, which is split over {mesh_axis}",
            op.span,
            f"`{axis}` is split",
            f"take `{axis}` off the `shard` line",
            (self.split_label(mesh_axis, axis),),
        )

    def _linear(self, op: Op, mesh_axis: str, axis: str) -> None:
        created = op.attrs["created"]
        if op.attrs["square"] and isinstance(created, tuple) and axis in created:
            self.add(
                "G311",
                f"`linear` maps `{axis}` to itself, and `{axis}` is split over {mesh_axis}",
                op.span,
                f"reads all of `{axis}` to make each part of it",
                f"take `{axis}` off the `shard` line",
                (self.split_label(mesh_axis, axis),),
            )

    def _sdpa(self, op: Op, mesh_axis: str, axis: str) -> None:
        heads, kv = str(op.attrs["heads"]), str(op.attrs["kv"])
        if axis in (op.attrs["c"], op.attrs["e"]):
            self._needs_whole(op, mesh_axis, axis)
        elif axis == kv and heads != kv and heads not in self.rules.listed[mesh_axis]:
            self.add(
                "G314",
                f"keys are split over {mesh_axis}, queries are not",
                op.span,
                f"queries have `{heads}`, whole; keys have `{kv}`, split",
                f"add `{heads}` to the `shard` line, or take `{kv}` off it",
                (self.split_label(mesh_axis, axis),),
            )

    def _rearrange(self, op: Op, mesh_axis: str, axis: str) -> None:
        for value in (op.inputs[0], op.result):
            for name in value.type.axes:
                group = self.program.axes[base_axis(name)].factors
                if axis in group[1:]:
                    self.add(
                        "G312",
                        f"`rearrange` moves the split axis `{axis}` inside `{name}`",
                        op.span,
                        f"`{name}` is {' * '.join(group)}",
                        f"take `{axis}` off the `shard` line, or put it first: "
                        f"`{name} = {' * '.join([axis, *(a for a in group if a != axis)])}`",
                        (self.split_label(mesh_axis, axis),),
                    )
                    return

    def _dispatch(self, op: Op, mesh_axis: str, axis: str) -> None:
        tokens = op.inputs[1].type.axes
        divided = next((a for a in tokens if a in self.rules.listed["cp"]), None)
        if mesh_axis == "cp" and op.attrs["capacity"] is not None and divided is not None:
            self.add(
                "G316",
                f"`dispatch` counts the tokens of whole sequences, and `{divided}` is split over cp",
                op.span,
                "an expert's capacity is a share of a sequence",
                f"leave `capacity` out, or take `{divided}` off the `shard` line of cp",
                (self.split_label("cp", divided),),
            )

    def _extern(self, op: Op, mesh_axis: str, axis: str) -> None:
        along = op.attrs["along"]
        allowed = [str(a) for a in along] if isinstance(along, tuple) else []
        if axis in allowed or self.program.axes[base_axis(axis)].kind is AxisKind.BATCH:
            return
        listed = (
            f"its `along` list is `{', '.join(allowed)}`" if allowed else "it has no `along` list"
        )
        self.add(
            "G317",
            f"`{op.attrs['name']}` may not be split along `{axis}`; {listed}",
            op.span,
            f"`{axis}` is split over {mesh_axis}",
            f"add it if the Python code allows it: `along {', '.join([*allowed, axis])}`",
            (self.split_label(mesh_axis, axis),),
        )

    def _whole_attention(self) -> None:
        soft = self.rules.soft.get("tp")
        if soft is None or self.rules.sizes["tp"] == 1:
            return
        for op in self._ops():
            if op.kind != "sdpa" or op.attrs["s"] != soft:
                continue
            if self.rules.split("tp", op, self.program) == soft:
                span = self.places.get(("tp", soft))
                self.add(
                    "G306",
                    f"`{soft}` is split over tp, but attention computes whole heads",
                    op.span,
                    f"keys and values are gathered over tp: `{op.attrs['heads']}` is not listed",
                    f"add `{op.attrs['heads']}` to the `shard` line",
                    (None if span is None else Label(span, "split here"),),
                    Severity.WARNING,
                )
                return

    def written_layouts(self) -> None:
        """A layout in a type that says what `shard` says anyway is only noise."""
        for op in self._ops():
            for value in op.results:
                for axis, mesh_axis in value.type.at:
                    listed = (
                        self.rules.pick(mesh_axis, value.type.axes) if mesh_axis != "pp" else None
                    )
                    if listed == axis and self.rules.sizes.get(mesh_axis, 1) > 1:
                        self.add(
                            "W315",
                            f"`{axis}@{mesh_axis}` repeats what the `shard` line says",
                            op.span,
                            "no effect",
                            f"write `{axis}`",
                            severity=Severity.WARNING,
                        )

    # ---- stages ---------------------------------------------------------------------------

    def stages(self) -> None:
        pp, zero = self.parallel.pp, self.parallel.zero
        span = self.origins.setting("parallel.zero")
        if zero >= 2 and pp > 1 and span is not None:
            self.add(
                "G404",
                f"zero {zero} does not work with a pipeline",
                span,
                f"zero {zero} …",
                "use `zero = 1`: with pp > 1 every micro-batch would gather the weights and "
                "scatter the gradients again",
                (self.mesh_label("pp", f"… with pp = {pp}"),),
            )
        if zero >= 1 and self.optimizer == "adafactor" and span is not None:
            where = self.origins.setting("train.optimizer")
            self.add(
                "G404",
                f"zero {zero} does not work with adafactor",
                span,
                f"zero {zero} …",
                "use `zero = 0`, its state is small; or adamw, whose steps need no whole tensors",
                (None if where is None else Label(where, "… with adafactor"),),
            )
        before = len(self.sink.diagnostics)
        self._counts()
        if len(self.sink.diagnostics) == before and not self.sink.has_errors:
            if count_stages(self.program, self.parallel) > 1:
                self._report(check_crossings(self.program, self.parallel))

    def _counts(self) -> None:
        pp = max(1, self.parallel.pp)
        stages, units = self.parallel.stages, num_units(self.program)
        place = self.origins.setting("parallel.stages")
        label = Label(span, f"pp = {pp}") if (span := self.origins.setting("parallel.pp")) else None
        if isinstance(stages, tuple) and place is not None:
            total = sum(n for n in stages if isinstance(n, int))
            if len(stages) % pp:
                help = "give one count per rank, or a multiple of pp for interleaved stages"
                message = f"{len(stages)} stages on {pp} pipeline ranks"
                self.add("G402", message, place, f"{len(stages)} counts", help, (label,))
            elif total != units:
                message = f"`stages` places {total} of {units} layers"
                help = f"the counts must add up to `{self._layers(units)}`"
                self.add("G403", message, place, f"adds up to {total}", help)
            else:
                self._report(check_empty(self.program, self.parallel, place))
            return
        if misplaced := list(check_marks(self.program, self.parallel)):
            self._report(misplaced)
            return
        found = count_stages(self.program, self.parallel)
        if found > 1 and found % pp:
            mark = self._last_mark()
            message = f"{found} stages on {pp} pipeline ranks"
            text = f"{found - 1} cuts make {found} stages"
            if mark is not None:
                help = "the number of stages must be a multiple of pp"
                self.add("G402", message, mark, text, help, (label,))
        elif uses_marks(self.program, self.parallel):
            return
        elif pp > units and label is not None:
            message = f"pp = {pp}, but there are only {units} layers to place"
            help = "use at most one pipeline rank per layer"
            self.add("G405", message, label.span, "more ranks than layers", help)
        elif found > units and (chunks := self.origins.setting("parallel.schedule")) is not None:
            message = f"{found} stages, but there are only {units} layers to place"
            help = f"with pp = {pp} there can be at most {units // pp} chunks a rank"
            self.add("G405", message, chunks, f"{found // pp} stages on each rank", help, (label,))

    def _layers(self, units: int) -> str:
        names = [
            n
            for n, a in self.program.axes.items()
            if a.size == units and a.kind is AxisKind.FEATURE
        ]
        named = next((n for n in ("layers", *names) if n in names), None)
        return f"{named} = {units}" if named else str(units)

    def _last_mark(self) -> Span | None:
        last: Span | None = None
        for statement in statements_of(self.program.forward):
            if isinstance(statement, StageMark) or (
                isinstance(statement, Repeat) and statement.every and last is None
            ):
                last = statement.span
        return last


def _names(value: Attr) -> tuple[str, ...]:
    return tuple(str(item) for item in value) if isinstance(value, tuple) else (str(value),)
