"""The C++ tests of csrc/core, which need no torch. `make sanitize` runs them under sanitizers."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.MULTILINE)


def test_the_core_passes_its_own_tests(tmp_path: Path) -> None:
    if shutil.which("g++") is None or shutil.which("make") is None:
        pytest.skip("no g++ and make here")
    done = subprocess.run(
        ["make", "-j2", "-C", "csrc/tests", f"BUILD={tmp_path}", "test"],
        cwd=ROOT, capture_output=True, text=True, timeout=1500, check=False,
    )  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if not line.startswith(("ok", "g++"))]
    assert done.returncode == 0, "\n".join([*lines[-40:], done.stderr[-4000:]])
    assert "FAIL" not in done.stdout and done.stdout.count(" tests, 0 failures") >= 6


def test_no_header_of_torch_is_included_by_the_core() -> None:
    for path in (ROOT / "csrc" / "core").rglob("*"):
        if path.suffix in (".h", ".cpp"):
            found = INCLUDE.findall(path.read_text("utf-8"))
            assert not [name for name in found if name.startswith(("torch/", "ATen/", "c10"))], path
