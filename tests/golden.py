"""Whole transcripts of the checker: a spec, and what it says about it.

The first lines of a spec may hold `# override: dims.d=8`, `# profile: tiny` or
`# plan: other.giant`, one each line; imports are found beside the spec.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from giantdsl.diagnostics import render_all
from giantdsl.driver import compile_spec
from giantdsl.errors import SettingsError, SpecError
from giantdsl.source import SourceFile

_OPTION = re.compile(r"# (override|profile|plan): (.+)")


def transcript(path: Path, shown: str | None = None) -> str:
    """What `giantdsl check` says, under the name `shown` (default: the file's own)."""
    text = path.read_text(encoding="utf-8")
    options: dict[str, list[str]] = {"override": [], "profile": [], "plan": []}
    for line in text.splitlines():
        found = _OPTION.fullmatch(line)
        if found is None:
            break
        options[found[1]].append(found[2])
    name = str(path) if shown is None else shown
    plan = path.parent / options["plan"][0] if options["plan"] else None
    try:
        compiled = compile_spec(
            SourceFile(name, text),
            overrides=options["override"],
            profiles=options["profile"],
            plan_file=plan,
        )
    except SpecError as error:
        said = str(error)
    except SettingsError as error:
        said = f"error: {error}"
    else:
        said = render_all(compiled.warnings) or "no faults"
    return said.replace(f"{path.parent}/", "") + "\n"


def check_golden(path: Path, found: str, request: pytest.FixtureRequest) -> None:
    """Compare with `path`, or write it under --update-golden."""
    if request.config.getoption("--update-golden"):
        path.write_text(found, encoding="utf-8")
    assert path.is_file(), f"{path.name} is missing: run pytest with --update-golden and read it"
    assert found == path.read_text(encoding="utf-8")
