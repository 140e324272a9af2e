"""Models under a plan, as far as the passes take them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from giantdsl import resources
from giantdsl.driver import Compiled, compile_spec
from giantdsl.ir.nodes import Program
from giantdsl.passes.insert_collectives import insert_collectives
from giantdsl.passes.layout import Rules, rules_of
from giantdsl.passes.storage import Key, WeightLayout, weight_layouts
from giantdsl.settings.values import ParallelSettings, ShardRule


@dataclass(frozen=True, slots=True)
class Case:
    compiled: Compiled
    rules: Rules
    weights: dict[Key, WeightLayout]
    program: Program


def sliced(name: str, *, cp_axes: tuple[str, ...] = (), soft: bool = True, **sizes: int) -> Case:
    """A model of `models/`, its tiny profile, on a mesh; `cp_axes` are listed for cp."""
    profiles = [] if name == "demo" else ["tiny"]
    compiled = compile_spec(resources.model_path(name), profiles=profiles)
    parallel = compiled.settings.parallel or ParallelSettings()
    shard = list(parallel.shard)
    if not soft:
        shard = [replace(rule, otherwise=None) for rule in shard]
    if cp_axes:
        shard.append(ShardRule(axes=cp_axes, mesh_axis="cp"))
    ones = dict.fromkeys(("dp", "tp", "pp", "cp", "ep"), 1)
    parallel = replace(parallel, shard=tuple(shard), **(ones | sizes))
    rules = rules_of(compiled.program, parallel)
    weights = weight_layouts(compiled.program, rules)
    return Case(compiled, rules, weights, insert_collectives(compiled.program, rules, weights))
