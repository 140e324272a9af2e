"""Small versions of specs for `verify`."""

from __future__ import annotations

import pytest

from giantdsl import resources
from giantdsl.driver import compile_spec
from giantdsl.errors import SpecError
from giantdsl.verify.layouts import all_layouts
from giantdsl.verify.small import SmallSpec


@pytest.mark.parametrize("name", resources.model_names())
def test_every_layout_has_a_small_version(name: str) -> None:
    """Where one size cannot be made small the others are all the same."""
    small = SmallSpec(compile_spec(resources.model_path(name)))
    for layout in all_layouts(small.space, 8):
        try:
            axes = small.compile(layout).program.axes
        except SpecError:
            continue
        sizes = {n: a.size for n, a in axes.items() if a.size is not None}
        assert max(sizes.values()) <= 320, (layout.label, sizes)
