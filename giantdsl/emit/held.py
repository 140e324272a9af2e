"""What a rank holds of each weight, as text."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from giantdsl.ir.nodes import Program, Weight
from giantdsl.ir.parameters import extent
from giantdsl.plan import AxisSplit

LATER = "Linear"
"""The runtime's class of linear layers whose weight gradients can be put off."""


@dataclass(frozen=True, slots=True)
class Held:
    """Divided axes, and by id of a weight the (axis, mesh axis) pairs it is stored divided along.

    `linear` is the class of linear layers. A plain module divides nothing.
    """

    splits: Mapping[str, AxisSplit] = field(default_factory=dict)
    stored: Mapping[int, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    linear: str = "nn.Linear"

    def product(self, program: Program, weight: Weight, axes: Sequence[str]) -> str:
        """Elements along `axes` together: `axes.heads_tp.size * 64`."""
        divided = dict(self.stored.get(id(weight), ()))
        fixed = math.prod(extent(program, axis) for axis in axes if axis not in divided)
        names = [f"axes.{a}_{divided[a]}.size" for a in axes if a in divided]
        return " * ".join([*names, *([str(fixed)] if fixed != 1 or not names else [])])

    def place(self, program: Program, weight: Weight) -> str:
        """More arguments of `normal_`: the whole sizes and which of them are divided."""
        divided = dict(self.stored.get(id(weight), ()))
        if not divided:
            return ""
        sizes = [extent(program, axis) for axis in weight.axes]
        view = f"({', '.join(map(str, sizes))}{',' if len(sizes) == 1 else ''})"
        parts = [
            f"{i}: self.axes.{axis}_{divided[axis]}"
            for i, axis in enumerate(weight.axes)
            if axis in divided
        ]
        return f", {view}, {{{', '.join(parts)}}}"
