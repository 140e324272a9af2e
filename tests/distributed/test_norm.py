"""The gradient norm counts each element once, and no rank updates what is not finite."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from giantdsl.attrs import Config
from giantdsl.mesh.mesh import Mesh
from giantdsl.plan import AxisSplit, ParallelPlan, ParameterInfo, StageInfo, StoredParameter
from giantdsl.runtime.device import compute_dtype
from giantdsl.runtime.groups import Groups
from giantdsl.testing.ranks import RankPool
from giantdsl.train.parallel.optimizer import build_parallel_optimizer, combined_groups
from giantdsl.train.parallel.whole import gather_parameters
from giantdsl.train.step import StepResult
from tests.distributed.sliced_model import (
    ADAFACTOR,
    MOMENTUM,
    SGD,
    Layout,
    Runner,
    parallel_plan,
    reference,
)

Values = dict[str, list[float]]


def stored(
    name: str,
    size: int,
    stages: tuple[int, ...] = (0,),
    *,
    split: bool = False,
    partial: bool = False,
) -> StoredParameter:
    info = ParameterInfo(name, (size,), 1.0, False, None)
    splits = ((0, "half"),) if split else ()
    return StoredParameter(info, (size,), splits, ("dp", "tp") if partial else ("dp",), stages)


def plan_of(mesh: dict[str, int], zero: int, *parameters: StoredParameter) -> ParallelPlan:
    base = parallel_plan(Layout())
    stage = base.stages[0]
    return replace(
        base,
        model=replace(base.model, parameters=tuple(p.info for p in parameters)),
        mesh=tuple((axis, mesh.get(axis, 1)) for axis in ("pp", "dp", "cp", "ep", "tp")),
        splits=(AxisSplit("half", ("tp",), 2, 2, False),),
        stages=tuple(
            StageInfo(**{**_fields(stage), "index": i})
            for i in range(max(mesh.get("pp", 1), 1 + max(s for p in parameters for s in p.stages)))
        ),
        parameters=parameters,
        zero=zero,
    )


def _fields(stage: StageInfo) -> dict[str, object]:
    return {name: getattr(stage, name) for name in StageInfo.__dataclass_fields__}


def norm_of(
    rank: int, world: int, plan: ParallelPlan, gradients: list[Values], precision: str = "float64"
) -> float:
    """The norm that a rank sees, its gradients being `gradients[rank]`."""
    groups = Groups.make(Mesh(*zip(*plan.mesh, strict=True)), rank, combined_groups(plan))
    module, dtype = nn.Module(), compute_dtype(precision)
    for name, values in gradients[rank].items():
        module.register_parameter(name, nn.Parameter(torch.zeros(len(values), dtype=dtype)))
    pp = dict(plan.mesh)["pp"]
    own = [s.index for s in plan.stages if s.index % pp == groups.mesh.coordinate(rank)["pp"]]
    modules = dict.fromkeys(own, module)
    optimizer = build_parallel_optimizer(SGD, plan, groups, modules, precision=precision)
    optimizer.zero_grad()
    for name, values in gradients[rank].items():
        module.get_parameter(name).grad = torch.tensor(values, dtype=dtype)
    optimizer.finish()
    return optimizer.judge({}).norm


@pytest.mark.parametrize("zero", [0, 1])
def test_stages_with_gradients_3_and_4_have_norm_5(ranks: RankPool, zero: int) -> None:
    plan = plan_of({"pp": 2}, zero, stored("a", 1, (0,)), stored("b", 1, (1,)))
    assert ranks.run(norm_of, plan, [{"a": [3.0]}, {"b": [4.0]}], ranks=2) == [5.0, 5.0]


@pytest.mark.parametrize("zero", [0, 1])
@pytest.mark.parametrize("partial", [False, True])
def test_a_gain_on_two_slices_counts_once(ranks: RankPool, zero: int, partial: bool) -> None:
    """Not 5.831, which counts the gain twice."""
    plan = plan_of({"tp": 2}, zero, stored("gain", 1, partial=partial), stored("w", 2, split=True))
    gains = (1.0, 2.0) if partial else (3.0, 3.0)
    gradients = [{"gain": [gains[0]], "w": [0.0]}, {"gain": [gains[1]], "w": [4.0]}]
    assert ranks.run(norm_of, plan, gradients, ranks=2) == [5.0, 5.0]


@pytest.mark.parametrize("zero", [0, 1])
def test_a_tied_weight_counts_once(ranks: RankPool, zero: int) -> None:
    """Not 7.0711, which counts both copies."""
    plan = plan_of({"pp": 2}, zero, stored("w", 2, (0, 1)))
    gradients = [{"w": [3.0, 0.0]}, {"w": [0.0, 4.0]}]
    assert ranks.run(norm_of, plan, gradients, ranks=2) == [5.0, 5.0]


@pytest.mark.parametrize("zero", [0, 1])
def test_tied_weights_count_once_wherever_their_first_stage_is(ranks: RankPool, zero: int) -> None:
    """That of `w` is on rank 0, that of `v` on rank 1; they lie in one bucket."""
    plan = plan_of({"pp": 2}, zero, stored("w", 2, (0, 1)), stored("v", 1, (1, 2)))
    gradients = [{"w": [3.0, 0.0], "v": [5.0]}, {"w": [0.0, 4.0], "v": [7.0]}]
    assert ranks.run(norm_of, plan, gradients, ranks=2) == [13.0, 13.0]


@pytest.mark.parametrize("zero", [0, 1, 2])
def test_what_lies_between_gradients_does_not_count(ranks: RankPool, zero: int) -> None:
    """Three tensors whose places in a bucket leave room, and a step before this one."""
    plan = plan_of({"dp": 2}, zero, stored("a", 1), stored("b", 65), stored("c", 3))
    gradients = [{"a": [1.0], "b": [1.0] * 65, "c": [1.0] * 3}] * 2
    norm = 2 * 69**0.5
    assert ranks.run(norm_of, plan, gradients, ranks=2) == pytest.approx([norm, norm], rel=1e-12)


@pytest.mark.parametrize("zero", [0, 1])
def test_data_ranks_add_up_before_the_norm(ranks: RankPool, zero: int) -> None:
    plan = plan_of({"dp": 2}, zero, stored("w", 2))
    assert ranks.run(norm_of, plan, [{"w": [1.0, 4.0]}, {"w": [2.0, 0.0]}], ranks=2) == [5.0, 5.0]


def steps(
    rank: int, world: int, layout: Layout
) -> tuple[list[StepResult], dict[str, Tensor | None]]:
    runner = Runner(layout, rank)
    results = [runner.step(step) for step in range(1, layout.steps + 1)]
    return results, dict(gather_parameters(runner.optimizer))


@pytest.mark.parametrize("zero", [0, 1, 2])
@pytest.mark.parametrize("poison", [0, 3])
def test_what_is_not_finite_on_one_rank_is_skipped_on_all(
    ranks: RankPool, zero: int, poison: int
) -> None:
    layout = Layout(dp=2, tp=2, zero=zero, poison=poison, overlap=False, steps=3)
    found = ranks.run(steps, layout, ranks=4)
    for results, _ in found:
        assert [r.bad for r in results] == [None, "gradient of `up.weight`", None]
    _, wanted, _ = reference(layout)
    for name, tensor in found[0][1].items():
        torch.testing.assert_close(tensor, wanted[name].detach(), rtol=1e-10, atol=1e-12)


def test_the_stage_is_named(ranks: RankPool) -> None:
    layout = Layout(dp=2, pp=2, poison=1, overlap=False, steps=2)
    for results, _ in ranks.run(steps, layout, ranks=4):
        assert results[1].bad == "gradient of `up.weight` of stage 0"


def nothing_moved(rank: int, world: int) -> tuple[str | None, bool]:
    """A loss that is not finite on the last stage only."""
    runner = Runner(Layout(dp=2, pp=2), rank)
    before = {n: t.clone() for n, t in runner.optimizer.tensors.items()}
    if runner.at["pp"] == 1 and runner.at["dp"] == 1:
        with torch.no_grad():
            runner.module.head.fill_(torch.nan)
            before["head"].fill_(torch.nan)
    result = runner.step(1)
    after = runner.optimizer.tensors
    same = all(torch.equal(after[n].nan_to_num(), t.nan_to_num()) for n, t in before.items())
    return result.bad, same


def test_a_loss_that_is_not_finite_is_named(ranks: RankPool) -> None:
    for bad, same in ranks.run(nothing_moved, ranks=4):
        assert bad == "loss `lm` of stage 1"
        assert same


def part_without_gradient(rank: int, world: int, kind: Config) -> tuple[bool, float]:
    """A slice that only rank 0's backward pass reaches, after a step that reached both."""
    plan = plan_of({"tp": 2}, 0, stored("w", 2, split=True), stored("x", 2))
    groups = Groups.make(Mesh(*zip(*plan.mesh, strict=True)), rank, combined_groups(plan))
    module = nn.Module()
    module.register_parameter("w", nn.Parameter(torch.ones(1, dtype=torch.float64)))
    module.register_parameter("x", nn.Parameter(torch.ones(2, dtype=torch.float64)))
    optimizer = build_parallel_optimizer(kind, plan, groups, {0: module}, precision="float64")
    for ranks in ((0, 1), (0,)):
        optimizer.zero_grad()
        if rank in ranks:
            module.get_parameter("w").grad = torch.ones(1, dtype=torch.float64)
        optimizer.finish()
        optimizer.judge({})
        before = module.get_parameter("w").item()
        optimizer.step(0.1)
    return bool((module.get_parameter("x") == 1).all()), before - module.get_parameter("w").item()


@pytest.mark.parametrize("kind", [MOMENTUM, ADAFACTOR], ids=lambda k: k.name)
def test_a_part_that_nothing_reached_has_a_gradient_of_zeros(ranks: RankPool, kind: Config) -> None:
    """As it is where one process has the whole tensor; what nothing reaches anywhere stays."""
    reached, other = ranks.run(part_without_gradient, kind, ranks=2)
    assert reached[0] and other[0]
    assert 0 < other[1] < reached[1]


def test_squares_beyond_float32_are_no_reason_to_skip(ranks: RankPool) -> None:
    plan = plan_of({"dp": 2}, 0, stored("w", 2))
    gradients = [{"w": [3e30, 0.0]}, {"w": [0.0, 4e30]}]
    found = ranks.run(norm_of, plan, gradients, "float32", ranks=2)
    assert found == pytest.approx([5e30, 5e30], rel=1e-6)
