"""Where the files that ship beside the code lie: grammar, block library, models.

In a wheel `grammar/` and `models/` are sub-packages of `giantdsl`; in a checkout and in an
editable install they stand beside it. `importlib.resources` would say the same after 20 ms of
imports, which `giantdsl check` cannot spare.
"""

from __future__ import annotations

from pathlib import Path

from giantdsl.errors import InternalError

_PACKAGE = Path(__file__).resolve().parent


def folder(name: str) -> Path:
    """The shipped folder `grammar`, `models`, `backends` or `csrc`.

    Raises InternalError where it was not installed.
    """
    for parent in (_PACKAGE, _PACKAGE.parent):
        if (parent / name / "__init__.py").is_file():
            return parent / name
    raise InternalError(f"the folder `{name}` of giantdsl is not installed")


def grammar_text() -> str:
    """The grammar of the language, as lark reads it."""
    return (folder("grammar") / "giant.lark").read_text(encoding="utf-8")


def std_path(name: str) -> Path | None:
    """The library file that `import … from "std/blocks"` names; None for what is no `std/` name.

    The file need not exist.
    """
    parts = name.split("/")
    if parts[0] != "std" or not all(part and part != ".." for part in parts):
        return None
    return folder("grammar").joinpath(*parts[:-1], f"{parts[-1]}.giant")


def model_path(name: str) -> Path:
    """The shipped spec `models/<name>.giant`. It need not exist."""
    return folder("models") / f"{name}.giant"


def model_names() -> list[str]:
    """Every spec that ships, by name."""
    return sorted(path.stem for path in folder("models").glob("*.giant"))


def page_path(code: str) -> Path:
    """The `explain` page of a diagnostic. It need not exist."""
    return _PACKAGE / "diagnostics" / "pages" / f"{code}.md"
