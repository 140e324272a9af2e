"""Ranks killed or stopped at a random moment. Many times, under every launcher: `launch.py`."""

from tests.torture.launch import torture


def test_struck_at_a_random_moment_a_job_ends_with_one_message() -> None:
    assert torture(times=2, seed=5, launchers=["local"], say=False) == ""
