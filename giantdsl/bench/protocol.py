"""What is asked of a rank and what it answers."""

from __future__ import annotations

from dataclasses import dataclass, field

from giantdsl.bench.cells import Cell


@dataclass(frozen=True, slots=True)
class Setup:
    """The first message to a rank. Ranks meet over the file `store`."""

    rank: int
    size: int
    backends: tuple[str, ...]
    store: str
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Measure:
    """Every backend in turn, `rounds` times, about `budget_s` seconds of calls each time."""

    cell: Cell
    backends: tuple[str, ...]
    rounds: int
    budget_s: float


@dataclass(frozen=True, slots=True)
class CopyRate:
    """How fast this rank copies blocks of `num_bytes`; one that is not `takes_part` waits."""

    num_bytes: int
    takes_part: bool
    seconds: float = 0.04


@dataclass(frozen=True, slots=True)
class At:
    """Not an answer yet: the rank is at work on this backend."""

    backend: str


@dataclass(frozen=True, slots=True)
class Failed:
    """The rank cannot go on. `backend` is what it was at work on; "" where it was none."""

    backend: str
    message: str


@dataclass(slots=True)
class Times:
    """One backend at one rank. `seconds` are of one call, by round; `wire_bytes` of one call, in the
    busier direction of the host's interface, headers included."""

    is_correct: bool
    calls: int = 0
    seconds: list[float] = field(default_factory=list)
    wire_bytes: float = 0.0
