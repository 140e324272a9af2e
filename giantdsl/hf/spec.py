"""What loading and saving need of a spec: its program and its checkpoint maps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from giantdsl.diagnostics import Sink
from giantdsl.errors import SettingsError
from giantdsl.ir.nodes import Program
from giantdsl.weights.recipe import WeightMap
from giantdsl.weights.resolve import resolve


class MappedSpec(Protocol):
    """A compiled spec. `weight_maps` holds the sections by name, library maps looked up."""

    @property
    def program(self) -> Program: ...
    @property
    def weight_maps(self) -> Mapping[str, Any]: ...


def weight_map(spec: MappedSpec, name: str) -> WeightMap:
    """The rules of section `weights NAME`.

    Raises SettingsError when the spec has none, SpecError when the section is wrong.
    """
    compiled: MappedSpec = getattr(spec, "compiled", spec)
    section = compiled.weight_maps.get(name)
    if section is None:
        known = ", ".join(f"`weights {key}`" for key in compiled.weight_maps)
        raise SettingsError(
            f"the spec `{compiled.program.model}` has no `weights {name}` section"
            + (f"; it has {known}" if known else "")
        )
    sink = Sink()
    found = resolve(section, compiled.program, sink)
    sink.raise_if_errors()
    assert found is not None, "resolve reports when it gives nothing"
    return found
