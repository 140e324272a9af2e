"""What is said when giantdsl itself is wrong."""

from __future__ import annotations

import sys
import tempfile
import traceback

from giantdsl import __version__
from giantdsl.errors import InternalError


def describe_crash(error: BaseException) -> str:
    """One line for the user. The traceback goes to a file they can attach to a report."""
    with tempfile.NamedTemporaryFile(
        "w", prefix="giantdsl-", suffix=".txt", delete=False, encoding="utf-8"
    ) as file:
        file.write(f"giantdsl {__version__}, Python {sys.version}\n{sys.argv}\n")
        traceback.print_exception(error, file=file)
    if isinstance(error, InternalError):
        return f"{error} and `{file.name}`"
    kind = type(error).__name__
    return f"internal error: {kind}: {error}; please report this with the spec and `{file.name}`"
