"""What is known of every rank, and the verdict on the whole job. Pure: no clock, no process.

Used by the process that started the ranks, and by rank 0 where a launcher started them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from giantdsl.train.launch.channel import Message
from giantdsl.train.launch.failure import (
    CONSEQUENCE,
    SETTINGS,
    SILENT,
    STOPPED,
    Failure,
)
from giantdsl.train.launch.place import Place

_STOPPED_FOR_S = 2.0
_INTERRUPTED_FOR_S = 5.0
_PAUSE_S = 5.0
_MAX_LINES = 16


@dataclass(slots=True)
class RankState:
    """One rank. `status`: starting, running, done, interrupted, failed or lost."""

    rank: int
    status: str = "starting"
    place: Place | None = None
    seen_at: float = 0.0
    stopped_since: float | None = None
    position: str = ""
    frame: str = ""
    value: str | None = None

    @property
    def is_over(self) -> bool:
        return self.status not in ("starting", "running")

    @property
    def host(self) -> str:
        return "" if self.place is None else self.place.host

    def __str__(self) -> str:
        where = self.position or self.status
        at = f", in {self.frame}" if self.frame and not self.is_over else ""
        return f"  rank {self.rank} ({self.host}): {where}{at}"


@dataclass(frozen=True, slots=True)
class Settle:
    """How long a failure waits for a better one, in seconds.

    A connection that broke waits longest: the rank behind it has to be found.
    """

    failure_s: float = 0.25
    settings_s: float = 1.0
    consequence_s: float = 2.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """The job is over: because of `failure`, or of `signal`, or well."""

    failure: Failure | None = None
    signal: int | None = None


class Watch:
    """Collects what ranks say and what is seen of them. Times are in seconds of one clock."""

    def __init__(
        self,
        ranks: Iterable[int],
        now: float,
        *,
        silent_s: float,
        start_s: float,
        settle: Settle | None = None,
    ) -> None:
        self.ranks = {rank: RankState(rank, seen_at=now) for rank in ranks}
        self._failures: list[tuple[float, Failure]] = []
        self._silent_s = silent_s
        self._start_s = start_s
        self._settle = settle or Settle()
        self._signal: int | None = None
        self._interrupted_at: float | None = None
        self._checked_at = now

    # ---- what happens -----------------------------------------------------------------------

    def on_message(self, rank: int, message: Message, now: float) -> None:
        state = self.ranks[rank]
        state.seen_at = now
        match message["kind"]:
            case "hello":
                state.place = Place(**message["place"])
                state.status = "running"
            case "beat":
                state.position, state.frame = message["position"], message["frame"]
            case "error":
                self.add(Failure(**message["failure"]), now)
            case "interrupted":
                state.status = "interrupted"
                self._signal = message["signal"]
                self._interrupted_at = self._interrupted_at or now
            case "done":
                state.status, state.value = "done", message.get("value")

    def add(self, failure: Failure, now: float) -> None:
        """A failure of a rank, once: what a failed rank does later is of no interest."""
        assert failure.rank is not None
        state = self.ranks[failure.rank]
        if state.is_over:
            return
        state.status = "failed"
        position = failure.position or state.position
        state.position = position
        host = failure.host or state.host
        self._failures.append((now, replace(failure, position=position, host=host)))

    def on_stopped(self, rank: int, is_stopped: bool, now: float) -> None:
        state = self.ranks[rank]
        if not is_stopped:
            state.stopped_since = None
        elif state.stopped_since is None:
            state.stopped_since = now
        elif now - state.stopped_since >= _STOPPED_FOR_S:
            pid = "" if state.place is None else f" {state.place.pid}"
            self.add(Failure(rank, STOPPED, f"process{pid} is stopped (SIGSTOP)"), now)

    def check(self, now: float) -> None:
        """Look for ranks that say nothing. To be called every second or so."""
        if now - self._checked_at > _PAUSE_S:
            # The watch itself did not run: Ctrl-Z, or a machine that slept. Nobody was heard.
            for state in self.ranks.values():
                state.seen_at, state.stopped_since = now, None
        self._checked_at = now
        for state in self.ranks.values():
            silent_s = now - state.seen_at
            if state.status == "starting" and silent_s > self._start_s:
                text = f"did not start within {self._start_s:.0f} s"
                self.add(Failure(state.rank, SILENT, text), now)
            elif state.status == "running" and silent_s > self._silent_s:
                text = f"no sign of life for {self._silent_s:.0f} s; its process hangs"
                at = f"last seen in {state.frame}" if state.frame else ""
                self.add(Failure(state.rank, SILENT, text, details=at), now)

    @property
    def failures(self) -> list[Failure]:
        """In the order in which they became known."""
        return [failure for _, failure in self._failures]

    # ---- what follows -----------------------------------------------------------------------

    def verdict(self, now: float) -> Verdict | None:
        """None as long as the job goes on, or its first failure is not certain."""
        if self._failures:
            return self._failed(now)
        if all(state.is_over for state in self.ranks.values()):
            return Verdict(signal=self._signal)
        if self._interrupted_at is not None and now - self._interrupted_at > _INTERRUPTED_FOR_S:
            return Verdict(signal=self._signal)
        return None

    def _failed(self, now: float) -> Verdict | None:
        # After an interruption, ranks that are gone leave broken connections behind.
        causes = [(came, f) for came, f in self._failures if f.kind != CONSEQUENCE]
        if not causes and self._signal is not None:
            over = all(state.is_over for state in self.ranks.values())
            waited = now - (self._interrupted_at or now) > _INTERRUPTED_FOR_S
            return Verdict(signal=self._signal) if over or waited else None
        came = min(came for came, _ in causes or self._failures)
        first = min((f for _, f in causes or self._failures), key=lambda f: f.at)
        if first.kind == SETTINGS:
            everyone = {f.text for _, f in self._failures} == {first.text}
            if everyone and len(self._failures) == len(self.ranks):
                # The same on all ranks is not the doing of one.
                return Verdict(replace(first, rank=None))
            settle_s = self._settle.settings_s
        else:
            settle_s = self._settle.failure_s if causes else self._settle.consequence_s
        if now - came < settle_s:
            return None
        return Verdict(first if causes else first.with_details(self.positions()))

    def positions(self) -> str:
        """Where the ranks stand, those first that have not failed: one of them may be the reason."""
        ordered = sorted(self.ranks.values(), key=lambda s: (s.status == "failed", s.rank))
        lines = [str(state) for state in ordered[:_MAX_LINES]]
        more = len(ordered) - _MAX_LINES
        if more > 0:
            lines.append(f"  and {more} more")
        return "\n".join(["where the ranks stood:", *lines])
