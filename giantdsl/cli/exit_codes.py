"""What a command's exit code says."""

DONE = 0
FAILED = 1
"""The work failed: a run broke, a file would change under `--check`."""
WRONG_INPUT = 2
"""The user's input is wrong: spec, settings or arguments."""
INTERRUPTED = 130
"""Ctrl-C, as shells count signals: 128 and the signal's number."""
