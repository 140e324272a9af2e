"""The resolved settings of a run: every default filled in, every unit named.

Calls keep their shape, `adamw(betas=[0.9, 0.95], decay=0.1)`, as a Config whose kwargs are
complete: each parameter of its signature is there, defaults included, so a reader never has to
know a default. Where a value came from is in `Origins`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from giantdsl.attrs import Attr, Config


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainSettings:
    """The `train` section.

    `batch` is global, in sequences; `microbatch` (None: the whole batch of a data rank at once)
    in sequences a rank. Exactly one of `steps`, `tokens`, `epochs` is set. `lr` is a Config:
    constant(peak=, warmup=), linear, cosine, rsqrt, wsd. `clip` is a gradient norm, 0 for none.
    `precision` is "float32", "bf16" or "float64". `save` and `eval` are every(steps, …) Configs or None.
    """

    data: Config | None = None
    tokenizer: Config | None = None
    batch: int = 8
    microbatch: int | None = None
    steps: int | None = None
    tokens: int | None = None
    epochs: float | None = None
    optimizer: Config
    lr: Config
    clip: float = 0.0
    precision: str = "float32"
    save: Config | None = None
    eval: Config | None = None
    log: tuple[str, ...] = ("console",)
    seed: int = 0
    init: Config | None = None
    freeze: tuple[str, ...] = ()
    out: str | None = None
    compile: bool = False
    workers: int = 0
    label: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardRule:
    """`shard heads, ff on tp else s`."""

    axes: tuple[str, ...]
    mesh_axis: str
    otherwise: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelSettings:
    """The `parallel` section. A size of 0 means `auto`.

    `stages` is None where nothing is said: the marks of the spec then, if there are any.
    """

    dp: int = 1
    tp: int = 1
    pp: int = 1
    cp: int = 1
    ep: int = 1
    zero: int = 0
    schedule: Config = field(default_factory=lambda: Config("1f1b"))
    stages: Attr = None
    recompute: tuple[str, ...] = ()
    ring: bool = True
    order: tuple[str, ...] = ("pp", "dp", "cp", "ep", "tp")
    nodes: int | None = None
    compress: str | None = None
    shard: tuple[ShardRule, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Both sections; None where the spec has none."""

    train: TrainSettings | None
    parallel: ParallelSettings | None
