"""The benchmark of several processes runs, and writes what it measured."""

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "parallel.py"


def test_small_run_writes_every_part(tmp_path: Path) -> None:
    out = tmp_path / "parallel.json"
    command = [sys.executable, str(SCRIPT), "--small", "--rounds", "1", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    record = json.loads(out.read_text())
    parts = {row["part"] for row in record["rows"]}
    assert parts == {"slices", "data parallel", "pipeline", "sequence"}
    assert all(row["ours_ms"] > 0 and row["peer_ms"] > 0 for row in record["rows"])
    assert {each["schedule"] for each in record["overheads"]} == {
        "1f1b",
        "interleaved",
        "zero_bubble",
    }
    assert [each["messages"] for each in record["overheads"]] == [1, 1.5, 1]
    assert [each["schedule"] for each in record["bubbles"]] == ["1f1b"] or record["notes"]
    assert all(0 < each["simulated"] < 1 for each in record["bubbles"])
    assert "| data parallel |" in out.with_suffix(".md").read_text()
