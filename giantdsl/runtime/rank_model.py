"""What one rank holds of a model: its stages, as modules."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from giantdsl.errors import InternalError
from giantdsl.mesh.mesh import Mesh
from giantdsl.plan import ParallelPlan, StageInfo, StoredParameter
from giantdsl.runtime.axes import Axes
from giantdsl.runtime.groups import Groups
from giantdsl.runtime.loader import allocate, check_initialised, load_source, lower_module


@dataclass(frozen=True, slots=True)
class RankModel:
    """A rank's stages by index. All share `axes`."""

    stages: Mapping[int, nn.Module]
    axes: Axes


def mesh_of(plan: ParallelPlan) -> Mesh:
    """The plan's mesh, outermost axis first."""
    return Mesh(tuple(axis for axis, _ in plan.mesh), tuple(size for _, size in plan.mesh))


def stages_of(plan: ParallelPlan, pipeline_rank: int) -> tuple[StageInfo, ...]:
    """Stage i runs on pipeline rank i mod pp."""
    pp = dict(plan.mesh).get("pp", 1)
    return tuple(stage for stage in plan.stages if stage.index % pp == pipeline_rank)


def build_rank_model(
    plan: ParallelPlan,
    groups: Groups,
    device: torch.device | str = "cpu",
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
    *,
    search_path: Path | None = None,
) -> RankModel:
    """This rank's stages on `device`, floats in `dtype`, values from `seed`.

    The values are those of the whole model's elements, whatever part is here (invariant 8).
    Raises InternalError where a stage's parameters are not what the plan says.
    """
    axes: Axes | None = None
    modules: dict[int, nn.Module] = {}
    for stage in stages_of(plan, groups.pp.rank):
        namespace = load_source(stage.source, stage.source_name, search_path=search_path)
        axes = axes or namespace.axes(groups)
        with torch.device("meta"):
            module: nn.Module = getattr(namespace, stage.class_name)(axes)
        _check(module, plan, stage, axes)
        lower_module(module, plan.model, dtype)
        allocate(module, torch.device(device))
        module.init_weights(seed)
        check_initialised(module)
        modules[stage.index] = module
    assert axes is not None, "every pipeline rank has a stage"
    return RankModel(modules, axes)


def local_view(stored: StoredParameter, axes: Axes) -> tuple[int, ...]:
    """The sizes of a parameter's named axes on this rank."""
    divided = dict(stored.splits)
    return tuple(
        axes.size(divided[i]) if i in divided else size for i, size in enumerate(stored.view)
    )


def _check(module: nn.Module, plan: ParallelPlan, stage: StageInfo, axes: Axes) -> None:
    found = {name: parameter.numel() for name, parameter in module.named_parameters()}
    wanted = {
        stored.info.name: math.prod(local_view(stored, axes))
        for stored in plan.parameters
        if stage.index in stored.stages
    }
    for name in wanted.keys() | found.keys():
        if wanted.get(name) != found.get(name):
            raise InternalError(
                f"parameter `{name}` of stage {stage.index} has {wanted.get(name, 'no')} elements"
                f" in the plan but {found.get(name, 'none')} in the emitted module"
            )
