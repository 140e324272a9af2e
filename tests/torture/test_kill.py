"""A killed run, resumed, equals the run that was left alone. Ten times: `kill.py`."""

from pathlib import Path

from tests.torture.kill import torture


def test_killed_twice_and_still_equal_to_the_last_bit(tmp_path: Path) -> None:
    assert torture(times=2, steps=24, seed=3, folder=tmp_path, say=False) == ""
