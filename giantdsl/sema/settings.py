"""The `parallel` and `train` sections: merged, evaluated, checked, filled with defaults."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from giantdsl.attrs import Attr, Config
from giantdsl.diagnostics import Diagnostic, Fix, Label, Severity, Sink, did_you_mean, nearest
from giantdsl.sema.scalars import Failed, evaluate
from giantdsl.settings.kinds import Fault, Reading
from giantdsl.settings.origins import Origins, ShardPlaces
from giantdsl.settings.schema import DEFAULT_STEPS, LENGTHS, MESH_AXES, SECTIONS
from giantdsl.settings.values import ParallelSettings, Settings, ShardRule, TrainSettings
from giantdsl.source import Span
from giantdsl.syntax import ast


@dataclasses.dataclass(slots=True)
class _Entry:
    """A setting in force: who wrote it, and later changes inside its value."""

    setting: ast.Setting
    layer: int
    patches: list[tuple[tuple[ast.Name, ...], ast.Setting]] = dataclasses.field(
        default_factory=list
    )


def dims_overrides(
    profiles: Sequence[ast.Profile], changes: Sequence[ast.Setting]
) -> dict[str, ast.Expr]:
    """What profiles and the command line set in `dims`, later wins."""
    found: dict[str, ast.Expr] = {}
    for setting in [*(s for p in profiles for s in p.settings), *changes]:
        if setting.path.parts[0].text == "dims" and len(setting.path.parts) == 2:
            found[setting.path.parts[1].text] = setting.value
    return found


def resolve(
    parallel: ast.Parallel | None,
    train: ast.Train | None,
    profiles: Sequence[ast.Profile],
    changes: Sequence[ast.Setting],
    names: Mapping[str, Attr],
    blocks: Collection[str],
    sink: Sink,
) -> tuple[Settings, Origins]:
    """The settings under file < profiles < command line, and where each came from.

    `names` are the values expressions may name, `blocks` the blocks that can be recomputed.
    Faults go to the sink; the settings are then only good for finding more faults.
    """
    resolver = _Resolver(names, sink)
    for section, node in (("parallel", parallel), ("train", train)):
        resolver.file_section(section, node)
    for profile in profiles:
        resolver.layer(profile.settings)
    resolver.layer(changes)
    origins = resolver.origins
    train_settings = None
    if train is not None or resolver.entries["train"]:
        train_settings = resolver.train()
    parallel_settings = None
    if parallel is not None or resolver.entries["parallel"]:
        shards = [e for e in (parallel.entries if parallel else ()) if isinstance(e, ast.Shard)]
        parallel_settings = resolver.parallel(shards, blocks)
    settings = Settings(train=train_settings, parallel=parallel_settings)
    _check_batch(settings, origins, sink)
    return settings, origins


class _Resolver:
    def __init__(self, names: Mapping[str, Attr], sink: Sink) -> None:
        self.names, self.sink = names, sink
        self.origins = Origins()
        self.entries: dict[str, dict[str, _Entry]] = {"parallel": {}, "train": {}}
        self._layer = 0

    # ---- merging --------------------------------------------------------------------------

    def file_section(self, section: str, node: ast.Parallel | ast.Train | None) -> None:
        if node is None:
            return
        found = node.settings if isinstance(node, ast.Train) else node.entries
        for setting in found:
            if isinstance(setting, ast.Setting):
                self._place(section, setting.path.parts, setting, shown=section)

    def layer(self, settings: Sequence[ast.Setting]) -> None:
        """A profile, or the command line: paths begin with the section."""
        self._layer += 1
        for setting in settings:
            first, *rest = setting.path.parts
            if first.text == "dims":
                continue
            if first.text not in SECTIONS or not rest:
                self.sink.add(_unknown_section(setting, first))
            else:
                self._place(first.text, tuple(rest), setting, shown=first.text)

    def _place(
        self, section: str, path: Sequence[ast.Name], setting: ast.Setting, shown: str
    ) -> None:
        key, *inner = path
        known = SECTIONS[section]
        if key.text not in known:
            self.sink.add(_unknown_key(section, key, setting, known))
            return
        entries = self.entries[section]
        old = entries.get(key.text)
        if inner:
            if old is None:
                default = known[key.text].default
                self.sink.add(_nothing_inside(section, key, inner[0], default))
                return
            old.patches.append((tuple(inner), setting))
            return
        if old is not None and old.layer == self._layer and self._layer == 0:
            self.sink.add(_twice(section, setting, old.setting))
            return
        entries[key.text] = _Entry(setting, self._layer)

    # ---- reading --------------------------------------------------------------------------

    def value(self, section: str, key: str) -> Attr:
        """The value in force, in the form settings hold it."""
        what = f"`{section}.{key}`"
        schema = SECTIONS[section][key]
        entry = self.entries[section].get(key)
        if entry is None:
            return schema.kind.read(schema.default, Reading(what))
        span = entry.setting.span
        self.origins.settings[f"{section}.{key}"] = span
        self.origins.values[f"{section}.{key}"] = entry.setting.value.span
        value = evaluate(entry.setting.value, self.names, self.sink, words=True)
        exprs: dict[tuple[str, ...], ast.Setting] = {}
        for path, setting in entry.patches:
            change = evaluate(setting.value, self.names, self.sink, words=True)
            if isinstance(value, Failed) or isinstance(change, Failed):
                value = Failed()
                continue
            steps = tuple(name.text for name in path)
            exprs[steps] = setting
            patched = _patched(value, steps, change)
            if patched is None:
                self.sink.add(
                    _nothing_inside(section, entry.setting.path.parts[-1], path[0], value)
                )
                continue
            value = patched
        if isinstance(value, Failed):
            return schema.kind.read(schema.default, Reading(what))
        reading = Reading(what)
        result = schema.kind.read(value, reading)
        for fault in reading.faults:
            self.sink.add(_diagnostic(fault, entry.setting, exprs))
        if reading.faults:
            return schema.kind.read(schema.default, Reading(what))
        return result

    def train(self) -> TrainSettings:
        self._check_lengths()
        values: dict[str, Any] = {key: self.value("train", key) for key in SECTIONS["train"]}
        if all(values[key] is None for key in LENGTHS):
            values["steps"] = DEFAULT_STEPS
        values["label"] = values["label"] or ""
        return TrainSettings(**values)

    def _check_lengths(self) -> None:
        """Of steps, tokens and epochs the one written last holds; two at once are an error."""
        entries = self.entries["train"]
        given = [key for key in LENGTHS if key in entries]
        last = max((entries[key].layer for key in given), default=0)
        for key in given:
            if entries[key].layer < last:
                del entries[key]
        kept = [key for key in given if key in entries]
        if len(kept) > 1:
            first, second = entries[kept[0]].setting, entries[kept[1]].setting
            self.sink.add(
                Diagnostic(
                    "G607",
                    f"`{kept[0]}` and `{kept[1]}` both say how long the run is",
                    Label(second.span, "a second length"),
                    "keep one of steps, tokens and epochs",
                    (Label(first.span, "the first"),),
                )
            )
            for key in kept[1:]:
                del entries[key]

    def parallel(self, shards: Sequence[ast.Shard], blocks: Collection[str]) -> ParallelSettings:
        values: dict[str, Any] = {key: self.value("parallel", key) for key in SECTIONS["parallel"]}
        self._check_auto(values)
        self._check_recompute(values, blocks)
        rules: list[ShardRule] = []
        for shard in shards:
            rules.append(
                ShardRule(
                    axes=tuple(a.text for a in shard.axes),
                    mesh_axis=shard.mesh.text,
                    otherwise=shard.otherwise.text if shard.otherwise is not None else None,
                )
            )
            self.origins.shard.append(
                ShardPlaces(
                    tuple(a.span for a in shard.axes),
                    shard.mesh.span,
                    shard.otherwise.span if shard.otherwise is not None else None,
                )
            )
        return ParallelSettings(**values, shard=tuple(rules))

    def _check_auto(self, values: Mapping[str, Any]) -> None:
        autos = [axis for axis in MESH_AXES if values[axis] == 0]
        if len(autos) > 1:
            first, second = (self.entries["parallel"][a].setting for a in autos[:2])
            self.sink.add(
                Diagnostic(
                    "G603",
                    f"`{autos[0]}` and `{autos[1]}` are both auto",
                    Label(second.span, "a second auto"),
                    "at most one mesh size can follow from the others",
                    (Label(first.span, "the first"),),
                )
            )

    def _check_recompute(self, values: Mapping[str, Any], blocks: Collection[str]) -> None:
        entry = self.entries["parallel"].get("recompute")
        for name in values["recompute"]:
            if name != "full" and name not in blocks and entry is not None:
                self.sink.add(
                    Diagnostic(
                        "G407",
                        f"no block `{name}` to recompute",
                        Label(entry.setting.span, "not a block"),
                        did_you_mean(name, blocks, "name blocks of this file"),
                    )
                )


def _patched(value: Attr, path: tuple[str, ...], change: Attr) -> Attr | None:
    """The call with one argument replaced; None where there is no call to change."""
    if not isinstance(value, Config):
        return None
    key, *rest = path
    if rest:
        inner = _patched(value.get(key), tuple(rest), change)
        if inner is None:
            return None
        change = inner
    kwargs = dict(value.kwargs)
    kwargs[key] = change
    return Config(value.name, value.args, tuple(kwargs.items()))


# ---- diagnostics ---------------------------------------------------------------------------


def _unknown_section(setting: ast.Setting, first: ast.Name) -> Diagnostic:
    known = ["dims", *SECTIONS]
    return Diagnostic(
        "G601",
        f"no setting `{setting.path.text}`",
        Label(setting.path.span, "unknown setting"),
        did_you_mean(first.text, known, f"paths begin with {', '.join(known)}"),
    )


def _unknown_key(
    section: str, key: ast.Name, setting: ast.Setting, known: Collection[str]
) -> Diagnostic:
    near = nearest(key.text, known)
    return Diagnostic(
        "G601",
        f"`{section}` has no setting `{key.text}`",
        Label(key.span, "unknown setting"),
        f"did you mean `{near}`?" if near else f"known: {', '.join(sorted(known))}",
        fixes=(Fix(key.span, near),) if near else (),
    )


def _nothing_inside(section: str, key: ast.Name, inner: ast.Name, value: Attr) -> Diagnostic:
    shown = "not set" if value is None else f"{value}"
    return Diagnostic(
        "G601",
        f"`{section}.{key.text}` has no `{inner.text}` to set",
        Label(inner.span, f"`{key.text}` is {shown}"),
        f"set `{section}.{key.text}` as a whole",
    )


def _twice(section: str, setting: ast.Setting, first: ast.Setting) -> Diagnostic:
    return Diagnostic(
        "G606",
        f"`{section}.{setting.path.text}` is set twice",
        Label(setting.span, "again here"),
        "keep one of them",
        (Label(first.span, "first here"),),
    )


def _diagnostic(
    fault: Fault, setting: ast.Setting, patches: Mapping[tuple[str, ...], ast.Setting]
) -> Diagnostic:
    steps = tuple(str(step) for step in fault.path if isinstance(step, str))
    patch = patches.get(steps) if steps else None
    if patch is not None:
        span = patch.path.span if fault.name_only else patch.value.span
    else:
        span = _span_at(setting.value, fault)
    return Diagnostic(fault.code, fault.message, Label(span, fault.label), fault.help)


def _span_at(expr: ast.Expr, fault: Fault) -> Span:
    """The part of an expression that a fault's path leads to."""
    span = expr.span
    node: ast.Expr = expr
    name_span: Span | None = None
    for step in fault.path:
        name_span = None
        if isinstance(node, ast.Call):
            found = _argument(node, step)
            if found is None:
                return span
            name_span = found.name.span if found.name is not None else None
            node, span = found.value, found.value.span
        elif isinstance(node, ast.ListExpr) and isinstance(step, int) and step < len(node.items):
            item = node.items[step]
            node, span = item, item.span
        else:
            return span
    if fault.name_only:
        if name_span is not None:
            return name_span
        return node.function.span if isinstance(node, ast.Call) else span
    return span


def _argument(call: ast.Call, step: str | int) -> ast.Arg | None:
    if isinstance(step, str):
        return next((a for a in call.args if a.name is not None and a.name.text == step), None)
    positional = [a for a in call.args if a.name is None]
    return positional[step] if step < len(positional) else None


def _check_batch(settings: Settings, origins: Origins, sink: Sink) -> None:
    """G605. Data ranks all have the same number of rows; their last microbatch may be smaller."""
    train = settings.train
    if train is None or settings.parallel is None:
        return
    sizes = {"dp": max(1, settings.parallel.dp), "ep": max(1, settings.parallel.ep)}
    names = " * ".join(name for name, size in sizes.items() if size > 1 or name == "dp")
    counts = " * ".join(str(size) for name, size in sizes.items() if size > 1 or name == "dp")
    ranks = sizes["dp"] * sizes["ep"]
    micro = train.microbatch or 1
    span = origins.setting("train.batch") or origins.setting("train.microbatch")
    if ranks == 1 or span is None or train.batch % (ranks * micro) == 0:
        return
    help = (
        f"batch must be a multiple of {names} * microbatch = {counts} * {micro} = {ranks * micro}"
    )
    fits = train.batch % ranks == 0
    if fits:
        help += ", or the last microbatch of each data rank is smaller"
    sink.add(
        Diagnostic(
            "G605",
            "the batch does not divide",
            Label(span, f"{train.batch} / ({counts} * {micro}) is not whole"),
            help,
            severity=Severity.WARNING if fits else Severity.ERROR,
        )
    )
