"""What ended a job, as data and as the one message that people see."""

from __future__ import annotations

import re
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from giantdsl.errors import GiantError, SettingsError

SETTINGS = "settings"
FAULT = "fault"
UNEXPECTED = "unexpected"
DIED = "died"
STOPPED = "stopped"
SILENT = "silent"
CONSEQUENCE = "consequence"
"""Kinds of failure. A consequence is a collective that failed, most often because another rank
did: it is reported only where no other failure is found."""

_BROKEN_LINE = re.compile(
    r"third_party/gloo|NCCL|Connection (closed|reset|refused)|Broken pipe|[Tt]imed out|[Tt]imeout"
)
_MISMATCH = re.compile(
    r"Rank (\d+) is running collective: CollectiveFingerPrint\(SequenceNumber=(\d+), OpType=(\w+)"
    r"(?:, TensorShape=(\[[^]]*\]))?(?:, TensorDtypes=(\w+))?"
)


@dataclass(slots=True)
class Progress:
    """Where a rank stands. The job notes it; heartbeats and messages carry it.

    `show` gets the words at every note: a rank that is killed leaves them behind.
    """

    stage: int | None = None
    step: int | None = None
    instruction: str = ""
    show: Callable[[str], None] | None = None

    def note(
        self, *, stage: int | None = None, step: int | None = None, instruction: str | None = None
    ) -> None:
        """What is given changes, the rest stays. Some microseconds: once an instruction is fine."""
        if stage is not None:
            self.stage = stage
        if step is not None:
            self.step = step
        if instruction is not None:
            self.instruction = instruction
        if self.show is not None:
            self.show(str(self))

    def __str__(self) -> str:
        parts = [
            f"{word} {value}"
            for word, value in (("stage", self.stage), ("step", self.step))
            if value is not None
        ]
        return ", ".join([*parts, self.instruction] if self.instruction else parts)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a job ended. `rank` None: not one rank's doing. `at` is in seconds of `time.time()`.

    `details` are lines for below the message: a traceback, the end of a log, where all ranks stand.
    """

    rank: int | None
    kind: str
    text: str
    host: str = ""
    position: str = ""
    details: str = ""
    at: float = field(default_factory=time.time)

    @property
    def exit_code(self) -> int:
        """As everywhere: 2 where the user has to mend something, 1 for work that failed."""
        return 2 if self.kind == SETTINGS else 1

    @property
    def headline(self) -> str:
        """One line: rank, host, stage, step, instruction, cause."""
        text = " ".join(self.text.split())
        if self.rank is None:
            return text
        where = [f"host {self.host}"] if self.host else []
        if self.position:
            where.append(self.position)
        described = f" ({', '.join(where)})" if where else ""
        return f"rank {self.rank}{described}: {text}"

    def with_details(self, more: str) -> Failure:
        return replace(self, details="\n".join(t for t in (self.details, more) if t))

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a job ended: with rank 0's `value`, a `failure`, or the `signal` that interrupted it.

    `value` is None too on ranks but the first, and where the job returned nothing. A job that
    catches a signal, saves and returns says so in its value: with an attribute `signal`.
    """

    value: Any = None
    failure: Failure | None = None
    signal: int | None = None

    @classmethod
    def of(cls, value: Any, *, is_first: bool = True, signal: int | None = None) -> Outcome:
        """Of a job that returned `value` on this rank."""
        returned: int | None = getattr(value, "signal", None)
        return cls(value if is_first else None, signal=signal or returned)

    @property
    def exit_code(self) -> int:
        if self.failure is not None:
            return self.failure.exit_code
        return 0 if self.signal is None else 128 + self.signal


class Interrupted(BaseException):
    """A signal came and the job had no handler of its own for it."""

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__(number)


def describe(error: BaseException, rank: int, host: str, progress: Progress) -> Failure:
    """The failure that an exception in a rank is."""
    at, position = time.time(), str(progress)
    if isinstance(error, SettingsError):
        return Failure(rank, SETTINGS, str(error), host, position, at=at)
    kind = CONSEQUENCE if _is_consequence(error) else UNEXPECTED
    if isinstance(error, GiantError):
        kind = FAULT if kind == UNEXPECTED else kind
        return Failure(rank, kind, str(error), host, position, at=at)
    # The first frame is the launcher's.
    frames = error.__traceback__.tb_next if error.__traceback__ is not None else None
    lines = "".join(traceback.format_exception(type(error), error, frames)).rstrip()
    text = _mismatch(str(error)) or f"{type(error).__name__}: {error}"
    return Failure(rank, kind, text, host, position, lines, at)


def how_it_died(code: int) -> str:
    """In words, from an exit code as `subprocess` has it: negative for a signal."""
    if code >= 0:
        return f"the process ended with exit code {code} before its work was done"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    hint = ""
    if -code == signal.SIGKILL:
        hint = "; if nobody did that, the system was out of memory (`dmesg` says so)"
    return f"the process was killed by {name}{hint}"


def print_failure(failure: Failure) -> None:
    """The message on stderr, as one write: other ranks may write there at the same time."""
    text = f"error: {failure.headline}\n"
    if failure.details:
        text += f"{failure.details}\n"
    if sys.stderr.isatty():
        # A live line of rank 0 may stand there, with the cursor hidden.
        text = f"\r\x1b[K\x1b[?25h{text}"
    sys.stderr.write(text)
    sys.stderr.flush()


def _is_consequence(error: BaseException) -> bool:
    """Is it, or does it come from, a connection that broke or a wait that was too long?"""
    seen: BaseException | None = error
    while seen is not None:
        names = {kind.__name__ for kind in type(seen).__mro__}
        if "DistError" in names or isinstance(seen, ConnectionError):
            return True
        if type(seen) is RuntimeError and _BROKEN_LINE.search(str(seen)):
            return _mismatch(str(seen)) == ""
        # Only what was wrapped on purpose: another error while cleaning up is its own.
        seen = seen.__cause__
    return False


def _mismatch(text: str) -> str:
    """torch's report of collectives that do not fit, in a line; "" for any other text."""
    if "Detected mismatch between collectives" not in text:
        return ""
    calls = [
        f"rank {rank} calls {name.lower()}" + (f" of {shape} {dtype.lower()}" if shape else "")
        for rank, _, name, shape, dtype in _MISMATCH.findall(text)
    ]
    numbers = {number for _, number, *_ in _MISMATCH.findall(text)}
    which = f" number {numbers.pop()}" if len(numbers) == 1 else ""
    return f"mismatched collectives: in call{which}, {' but '.join(calls)}"
