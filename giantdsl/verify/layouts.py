"""Which layouts are tried: those that were asked for, or every legal one. No torch."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace

from giantdsl.attrs import Config, format_attr
from giantdsl.diagnostics import did_you_mean
from giantdsl.driver import Compiled
from giantdsl.errors import SettingsError
from giantdsl.ir.types import AxisKind
from giantdsl.settings.values import ParallelSettings, ShardRule
from giantdsl.verify.rows import Layout

SIZES = ("dp", "tp", "pp", "cp", "ep")
_ROWS = 8
_SCHEDULES = (
    Config("1f1b"),
    Config("gpipe"),
    Config("zero_bubble"),
    Config("interleaved", kwargs=(("chunks", 2),)),
)


@dataclass(frozen=True, slots=True)
class Space:
    """What of a spec decides about its layouts: its plan and the axes that mesh axes divide.

    `sequences` can go on cp, `experts` on ep. `can_divide_state`: zero 1 and above work with the
    optimizer.
    """

    parallel: ParallelSettings
    sequences: tuple[str, ...]
    experts: tuple[str, ...]
    can_divide_state: bool

    @classmethod
    def of(cls, compiled: Compiled) -> Space:
        program = compiled.program
        parallel = compiled.settings.parallel or ParallelSettings()
        used = {a for value in program.forward.params for a in value.type.axes}
        sequences = tuple(
            name
            for name, axis in program.axes.items()
            if axis.kind is AxisKind.SEQ and name in used
        )
        listed = tuple(a for rule in parallel.shard if rule.mesh_axis == "ep" for a in rule.axes)
        train = compiled.settings.train
        divides = train is None or train.optimizer.name != "adafactor"
        return cls(parallel, sequences, listed, divides)


def spec_layout(space: Space) -> Layout:
    """The spec's own plan; sizes that are `auto` are 1."""
    ones = {name: max(1, getattr(space.parallel, name)) for name in SIZES}
    return _layout(replace(space.parallel, **ones), space)


def parse_layouts(texts: Sequence[str], space: Space) -> list[Layout]:
    """`tp=2`, `pp=2,tp=2,schedule=gpipe`, `tp=2,seq=off`. Sizes that are not named are 1.

    `seq=off` drops the `else` of the `shard` lines; `cp` divides the sequences of the inputs, and
    with `ring=off` gathers keys there.
    Raises SettingsError for a key that is none.
    """
    return [_parsed(text, space) for text in texts]


def _parsed(text: str, space: Space) -> Layout:
    values: dict[str, object] = dict.fromkeys(SIZES, 1)
    parallel = replace(space.parallel, schedule=Config("1f1b"), stages=None, zero=0)
    soft = True
    micro: int | None = None
    for word in _split(text):
        key, _, value = (part.strip() for part in word.partition("="))
        if key == "seq":
            soft = value != "off"
        elif key == "ring":
            values[key] = value != "off"
        elif key == "microbatch" and value.isdigit():
            micro = int(value)
        elif key in (*SIZES, "zero") and value.isdigit():
            values[key] = int(value)
        elif key == "schedule":
            values[key] = _schedule(value)
        elif key == "recompute":
            values[key] = tuple(value.strip("[]").replace(" ", "").split("+"))
        else:
            known = (*SIZES, "zero", "schedule", "recompute", "seq", "ring", "microbatch")
            near = did_you_mean(key, known)
            raise SettingsError(f"a layout has no `{word}`" + (f"; {near}" if near else ""))
    made = replace(parallel, **values)  # type: ignore[arg-type]
    if made.pp > 1:
        made = replace(made, stages=Config("auto"))
    return _layout(made, space, soft=soft, microbatch=micro, label=text)


def _split(text: str) -> list[str]:
    """At commas and spaces outside brackets."""
    words, depth, start = [], 0, 0
    for i, char in enumerate(text):
        depth += (char in "([") - (char in ")]")
        if char in ", " and depth == 0:
            words.append(text[start:i])
            start = i + 1
    return [word for word in (*words, text[start:]) if word.strip()]


def _schedule(text: str) -> Config:
    name, _, rest = text.partition("(")
    if not rest:
        return Config(name)
    digits = "".join(char for char in rest if char.isdigit())
    return Config(name, kwargs=(("chunks", int(digits or 2)),))


def all_layouts(space: Space, max_ranks: int) -> Iterator[Layout]:
    """Every combination of sizes up to `max_ranks`, few ranks first; not all of them are legal.

    With tp the sequence is divided and not. Schedules, ZeRO stages, rings, recompute and
    microbatches take turns, so that each meets many sizes.
    """
    sizes = [
        dict(zip(SIZES, counts, strict=True))
        for counts in itertools.product(range(1, max_ranks + 1), repeat=len(SIZES))
        if math.prod(counts) <= max_ranks
    ]
    sizes = [s for s in sizes if _is_possible(s, space)]
    turn = 0
    for found in sorted(sizes, key=lambda s: (math.prod(s.values()), [-s[k] for k in SIZES])):
        for soft in (True, False) if found["tp"] > 1 and _has_soft(space) else (True,):
            yield _turned(found, soft, turn, space)
            turn += 1


def _is_possible(sizes: dict[str, int], space: Space) -> bool:
    return (sizes["cp"] == 1 or bool(space.sequences)) and (sizes["ep"] == 1 or bool(space.experts))


def _has_soft(space: Space) -> bool:
    return any(rule.otherwise for rule in space.parallel.shard)


def _turned(sizes: dict[str, int], soft: bool, turn: int, space: Space) -> Layout:
    pp, dp = sizes["pp"], sizes["dp"]
    schedule = _SCHEDULES[turn % len(_SCHEDULES)] if pp > 1 else Config("1f1b")
    zero = turn % (2 if pp > 1 else 4) if dp > 1 and space.can_divide_state else 0
    parallel = replace(
        space.parallel,
        schedule=schedule,
        stages=Config("auto") if pp > 1 else None,
        zero=zero,
        recompute=("full",) if turn % 3 == 2 else (),
        ring=sizes["cp"] == 1 or turn % 3 != 1,
        **sizes,  # type: ignore[arg-type]
    )
    return _layout(parallel, space, soft=soft, microbatch=1 + turn % 3)


def _layout(
    parallel: ParallelSettings,
    space: Space,
    *,
    soft: bool = True,
    microbatch: int | None = None,
    label: str | None = None,
) -> Layout:
    rules = [rule if soft else replace(rule, otherwise=None) for rule in parallel.shard]
    on_cp = {axis for rule in rules if rule.mesh_axis == "cp" for axis in rule.axes}
    missing = tuple(axis for axis in space.sequences if axis not in on_cp)
    if parallel.cp > 1 and missing:
        rules.append(ShardRule(axes=missing, mesh_axis="cp"))
    parallel = replace(parallel, shard=tuple(rules))
    chunks = parallel.schedule.get("chunks", 1)
    stages = parallel.pp * (chunks if isinstance(chunks, int) else 1)
    if isinstance(parallel.stages, tuple):
        stages = len(parallel.stages)
    ranks = math.prod(getattr(parallel, name) for name in SIZES)
    data = parallel.dp * parallel.ep
    rows = max(2, -(-_ROWS // data))
    micro = min(microbatch or max(1, rows // 2), rows)
    return Layout(
        label=label if label is not None else _label(parallel, soft, micro),
        section=parallel_text(parallel),
        ranks=ranks,
        batch=data * rows,
        microbatch=micro,
        layers=max(2, stages),
    )


def _label(parallel: ParallelSettings, soft: bool, microbatch: int) -> str:
    words = [f"{name}={getattr(parallel, name)}" for name in SIZES if getattr(parallel, name) > 1]
    words += [str(parallel.schedule)] if parallel.pp > 1 else []
    words += [f"zero={parallel.zero}"] if parallel.zero else []
    words += ["seq=off"] if not soft else []
    words += ["ring=off"] if not parallel.ring else []
    words += [f"recompute={'+'.join(parallel.recompute)}"] if parallel.recompute else []
    return " ".join(words) or "one process"


def parallel_text(parallel: ParallelSettings) -> str:
    """A `parallel` section that says what these settings say."""
    lines = [f"{name} = {getattr(parallel, name)}" for name in SIZES]
    defaults = ParallelSettings()
    for field in fields(parallel):
        value = getattr(parallel, field.name)
        if field.name in (*SIZES, "shard") or value == getattr(defaults, field.name):
            continue
        lines.append(f"{field.name} = {_written(value)}")
    for rule in parallel.shard:
        tail = f" else {rule.otherwise}" if rule.otherwise else ""
        lines.append(f"shard {', '.join(rule.axes)} on {rule.mesh_axis}{tail}")
    return "parallel {\n" + "".join(f"  {line}\n" for line in lines) + "}\n"


def _written(value: object) -> str:
    if isinstance(value, tuple):
        return "[" + ", ".join(str(item) for item in value) + "]"
    if isinstance(value, Config):
        return str(value)
    return format_attr(value) if isinstance(value, int | float) else str(value)
