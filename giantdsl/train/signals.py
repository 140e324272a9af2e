"""Ctrl-C and SIGTERM as a wish: the step ends, the run saves, then it stops."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopRequest:
    """`number` is the signal that asked for the end, None as long as none did."""

    def __init__(self) -> None:
        self.number: int | None = None


@contextmanager
def stop_on_signals(say: Callable[[str], None]) -> Iterator[StopRequest]:
    """Catch both signals while the block runs.

    The first is noted in the StopRequest; a second one stops at once, with KeyboardInterrupt.
    Outside the main thread Python delivers no signals, so nothing is caught there.
    """
    request = StopRequest()

    def note(number: int, frame: FrameType | None) -> None:
        if request.number is not None:
            raise KeyboardInterrupt
        request.number = number
        name = "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name
        say(f"{name}: finishing this step, then saving; once more stops at once, without saving")

    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    before = {number: signal.signal(number, note) for number in _SIGNALS}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
