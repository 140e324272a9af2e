"""The repository as a whole: what may lie where, what must be written down, what start-up costs."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from giantdsl.diagnostics.codes import CODES
from giantdsl.resources import model_names, model_path, page_path

ROOT = Path(__file__).resolve().parents[1]
MANDATED = {
    "giantdsl", "grammar", "backends", "csrc", "models", "tests", "pyproject.toml",
    "README.md", "CHANGELOG.md", "Makefile", "docs", "benchmarks", "editors",
}  # fmt: skip


def tracked() -> list[Path]:
    found = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if found.returncode != 0:
        pytest.skip("not a git checkout")
    return [Path(line) for line in found.stdout.splitlines()]


def test_the_top_level_holds_only_what_it_may() -> None:
    names = {path.parts[0] for path in tracked()}
    assert {name for name in names if not name.startswith(".")} <= MANDATED
    assert MANDATED - {"csrc", "editors"} <= names


def used_codes() -> set[str]:
    texts = [
        p.read_text("utf-8") for p in (ROOT / "giantdsl").rglob("*.py") if p.name != "codes.py"
    ]
    return set(re.findall(r'"([GW]\d{3})"', "\n".join(texts)))


def test_every_code_is_registered_and_every_registered_code_is_used() -> None:
    assert used_codes() == set(CODES)


def test_every_code_has_a_page_with_a_wrong_and_a_right_example() -> None:
    for code, title in CODES.items():
        page = page_path(code).read_text("utf-8")
        assert page.startswith(f"# {code}: {title}\n"), code
        assert "\nWrong:\n" in page and "\nRight:\n" in page, code
    assert len(list(page_path("G000").parent.glob("*.md"))) == len(CODES)


def test_every_code_appears_in_a_whole_transcript() -> None:
    shown = "\n".join(p.read_text("utf-8") for p in (ROOT / "tests" / "cases").rglob("*.expected"))
    missing = {code for code in CODES if f"[{code}]" not in shown}
    # G010 and G023 need files of a size that does not belong here; tests/unit/syntax makes them.
    assert missing <= {"G010", "G022", "G023"}, missing


def test_check_and_fmt_import_neither_torch_nor_numpy_nor_rich_nor_lark() -> None:
    program = (
        "import sys; from giantdsl.cli.main import main\n"
        f"code = main(['check', {str(model_path('llama3'))!r}])\n"
        f"code |= main(['fmt', '--check', {str(model_path('llama3'))!r}])\n"
        "heavy = {'torch', 'numpy', 'rich', 'lark', 'safetensors', 'transformers'} & set(sys.modules)\n"
        "sys.exit(f'{code} {heavy}' if code or heavy else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_every_package_is_listed_for_the_wheel() -> None:
    config = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    listed = set(config["tool"]["setuptools"]["packages"])
    folders = {p.parent for p in (ROOT / "giantdsl").rglob("__init__.py")}
    inside = {".".join(folder.relative_to(ROOT).parts) for folder in folders}
    beside = {f"giantdsl.{name}" for name in ("csrc", "grammar", "models")}
    beside |= {
        ".".join(("giantdsl", *folder.relative_to(ROOT).parts))
        for folder in (p.parent for p in (ROOT / "backends").rglob("__init__.py"))
    }
    assert listed == inside | beside


def test_every_model_checks_from_the_command_line_and_says_its_size() -> None:
    for name in model_names():
        done = subprocess.run(
            [sys.executable, "-m", "giantdsl", "check", str(model_path(name))],
            cwd=ROOT, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        count = re.search(r"([\d,]{6,}) parameters", done.stdout + done.stderr)
        comment = model_path(name).read_text("utf-8").split("model ")[0]
        assert count is not None and (count[1] in comment or name == "demo")
