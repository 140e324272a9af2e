"""What a person sees of a run: a live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable

from rich.console import Console
from rich.live import Live
from rich.text import Text

from giantdsl.train.metrics import StepRecord

_LIVE_EVERY_S = 0.2
_LINE_EVERY_S = 5.0


class RunConsole:
    """Progress of a run of `total_steps`, known once its data is; messages go between.

    On a terminal one line is rewritten in place, otherwise a line is printed for the first step,
    then every few seconds, and for the last. `quiet` leaves out all but warnings.
    """

    def __init__(
        self,
        console: Console | None,
        *,
        memory_bytes: Callable[[], int] = lambda: 0,
        quiet: bool = False,
    ) -> None:
        self._console = console or Console(stderr=True, highlight=False)
        self.total_steps = 0
        self._memory_bytes = memory_bytes
        self._quiet = quiet
        self._live: Live | None = None
        self._shown_at: float | None = None
        self._first: tuple[int, float] | None = None

    def say(self, message: str) -> None:
        """A line that stays."""
        if not self._quiet:
            self.warn(message)

    def warn(self, message: str) -> None:
        """A line that stays, also when quiet."""
        self._console.print(Text(message), soft_wrap=True)

    def step(self, record: StepRecord) -> None:
        """Show a step, unless one was shown a moment ago."""
        if record.skipped is not None:
            self.warn(f"step {record.step} was skipped: {record.skipped} is not finite")
        if self._quiet:
            return
        now = time.monotonic()
        if self._first is None:
            self._first = (record.step, now)
        every = _LIVE_EVERY_S if self._console.is_terminal else _LINE_EVERY_S
        recent = self._shown_at is not None and now - self._shown_at < every
        if recent and record.step != self.total_steps:
            return
        self._shown_at = now
        self._show(self._line(record, self._seconds_left(record.step, now)))

    def _seconds_left(self, step: int, now: float) -> float | None:
        """From the mean of the steps since the first one shown; that one also warms up."""
        if self._first is None or step == self._first[0]:
            return None
        first_step, first_time = self._first
        return (now - first_time) / (step - first_step) * (self.total_steps - step)

    def _line(self, record: StepRecord, seconds_left: float | None) -> str:
        parts = [
            f"step {record.step}/{self.total_steps}",
            f"loss {record.loss:.4f}",
            f"lr {record.lr:.2e}",
            f"grad {record.grad_norm:.3f}",
            f"{_short(record.tokens_per_s)} tokens/s",
        ]
        if seconds_left is not None:
            parts.append(f"{duration(seconds_left)} left")
        parts.append(f"{_short(self._memory_bytes())}B")
        return "  ".join(parts)

    def _show(self, line: str) -> None:
        if not self._console.is_terminal:
            self._console.print(Text(line), soft_wrap=True)
            return
        if self._live is None:
            self._live = Live(console=self._console, auto_refresh=False)
            self._live.start()
        self._live.update(Text(line, no_wrap=True, overflow="ellipsis"), refresh=True)

    def close(self) -> None:
        """Leave the last line on the terminal and give the cursor back."""
        if self._live is not None:
            self._live.stop()
            self._live = None


def _short(value: float) -> str:
    """Three digits and a prefix: 48.1k."""
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= factor:
            return f"{value / factor:.3g}{prefix}"
    return f"{value:.3g}"


def duration(seconds: float) -> str:
    """`2 h 05 min`, `3 min 20 s`, `12 s`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
