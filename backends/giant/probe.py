"""Can the backend be used on this machine?"""

from __future__ import annotations

from giantdsl.backends.capability import Capability
from giantdsl.backends.giant.build import BuildError, find_compiler, recipe


def capability() -> Capability:
    """Builds nothing, and imports no torch."""
    compiler = find_compiler()
    name, devices = "giant", ("cpu",)
    try:
        wanted = recipe()
    except BuildError as error:
        return Capability(name=name, devices=devices, why_not=str(error), compiler=compiler)
    return Capability(
        name=name,
        devices=devices,
        why_not=None,
        compiler=compiler,
        library=wanted.library if wanted.library.is_file() else None,
        failed=wanted.log if wanted.log.is_file() else None,
    )
