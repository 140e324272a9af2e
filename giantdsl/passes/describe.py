"""What a plan says of values and parameters, as plain data for those who run it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from giantdsl.ir.nodes import Program, Value
from giantdsl.ir.parameters import extent, iter_layers, iter_parameters
from giantdsl.ir.types import BOOL, FLOAT, ROUTE, AxisKind, base_axis
from giantdsl.passes.layout import MESH_AXES, Rules
from giantdsl.passes.storage import Key, WeightLayout, owners_of
from giantdsl.plan import ParameterInfo, StoredParameter, ValueInfo


def value_info(program: Program, rules: Rules, value: Value, name: str, *, grad: bool) -> ValueInfo:
    """How a value lies on the ranks, by its type."""
    layout = {m: rules.layout(m, value) for m in MESH_AXES if rules.sizes[m] > 1}
    axes = value.type.axes
    split = tuple(tuple(m for m, axis in layout.items() if axis == a) for a in axes)
    sizes = tuple(program.axes[base_axis(a)].extent for a in axes)
    dtype = value.type.dtype if value.type.dtype in (FLOAT, BOOL) else "int"
    return ValueInfo(name, axes, sizes, split, dtype, grad)


def block_values(program: Program, rules: Rules) -> dict[str, tuple[ValueInfo, ...]]:
    """The results of every block by the logical name of its layer, loops expanded.

    Left out: blocks that work on what a router sent, which have no tensor that could be compared,
    and those in loops that share their weights, whose name stands for every iteration.
    """
    found: dict[str, tuple[ValueInfo, ...]] = {}
    for name, call, is_shared in iter_layers(program):
        results = call.function.results
        if not is_shared and not any(_is_ragged(program, value) for value in results):
            found[name] = tuple(
                value_info(program, rules, value, f"{name}[{i}]", grad=True)
                for i, value in enumerate(results)
            )
    return found


def _is_ragged(program: Program, value: Value) -> bool:
    kinds = (program.axes[base_axis(a)].kind for a in value.type.axes)
    return value.type.dtype == ROUTE or AxisKind.RAGGED in kinds


def stored_parameters(
    program: Program,
    layouts: Mapping[Key, WeightLayout],
    infos: Sequence[ParameterInfo],
    stages: Mapping[str, tuple[int, ...]],
) -> tuple[StoredParameter, ...]:
    """Every logical parameter of the whole model.

    Args:
      infos: the parameters in the plain module's order.
      stages: by name, the stages that hold it.
    """
    owners = owners_of(program)
    found: list[StoredParameter] = []
    for parameter, info in zip(iter_parameters(program), infos, strict=True):
        weight = parameter.weight
        layout = layouts[owners[id(weight)]]
        splits = tuple((weight.axes.index(axis), axis) for axis, _ in layout.split)
        view = tuple(extent(program, axis) for axis in weight.axes)
        held_by = stages[parameter.name]
        found.append(StoredParameter(info, view, tuple(sorted(splits)), layout.sum_over, held_by))
    return tuple(found)
