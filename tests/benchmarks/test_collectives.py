"""The benchmark of collectives runs on an emulated cluster, and writes what it measured."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.cluster import why_not

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "collectives.py"
REFUSAL = why_not()


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.skipif(REFUSAL is not None, reason=str(REFUSAL))
def test_a_part_is_added_to_what_was_there(tmp_path: Path) -> None:
    out = tmp_path / "collectives.json"
    part = ["--backends", "gloo", "--ops", "broadcast", "--rounds", "2", "--out", str(out)]
    first = run(*part, "--shapes", "2x1", "--links", "1gbit", "--sizes", "256k")
    assert first.returncode == 0, first.stderr[-3000:]
    again = run(*part, "--shapes", "1x2", "--sizes", "1k", "--add")
    assert again.returncode == 0, again.stderr[-3000:]
    record = json.loads(out.read_text())
    between, inside = record["rows"]
    assert (between["shape"], between["link"], inside["shape"]) == ("2x1", "1gbit", "1x2")
    assert between["is_correct"] and 0.9 < between["wire_factor"] < 1.5
    assert 0 < between["limit_ratio"] < 1.2
    assert 20 < record["links_MBps"]["2x1@1gbit"]["one_way"] < 125
    assert "## 2x1, link 1gbit" in out.with_suffix(".md").read_text()


def test_what_is_wrong_is_one_line() -> None:
    for arguments, message in (
        (["--shapes", "2"], "shape `2`"),
        (["--ops", "sum"], "no operation `sum`"),
        (["--links", "fast"], "bandwidth 'fast'"),
    ):
        done = run(*arguments)
        assert done.returncode == 2 and message in done.stderr and done.stderr.count("\n") == 1
