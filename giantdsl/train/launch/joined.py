"""One rank of a job that torchrun, SLURM or mpirun started, or `run_local` on many hosts."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from giantdsl.errors import GiantError
from giantdsl.train.launch.channel import Channel, Message
from giantdsl.train.launch.context import Job, LaunchOptions, job_name
from giantdsl.train.launch.environment import Rank
from giantdsl.train.launch.failure import (
    DIED,
    SILENT,
    STOPPED,
    Failure,
    Interrupted,
    Outcome,
    Progress,
    describe,
    print_failure,
)
from giantdsl.train.launch.link import Link
from giantdsl.train.launch.place import Place, here, is_stopped, kill_if_here

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

Tell = Callable[[Failure, bool], None]
"""Gets the failure that ended the job, and whether this rank is the one to tell people. May be
called in another thread, with the main one hanging; the process ends when it returns."""

_SPOKEN_S = 1.0
_LATER_S = 1.0
"""How much later the others end than the rank that failed: launchers report the first as the cause."""


def print_if_speaker(failure: Failure, is_speaker: bool) -> None:
    if is_speaker:
        print_failure(failure)


def run_as_rank(
    rank: Rank,
    job: Job | str,
    argument: Callable[[], Any],
    options: LaunchOptions | None = None,
    *,
    tell: Tell = print_if_speaker,
    progress: Progress | None = None,
) -> Outcome:
    """Run `job(context, argument())` as this rank, until all ranks are done or one fails.

    `argument` is called where an error in it is one of the job, with others to be told.

    Every rank calls it. In the whole job one rank tells people of the first failure. A rank that
    is still in its job then ends with its process, within five seconds and also if its main
    thread hangs in a collective; one whose job has ended returns the Outcome.
    """
    joined = _Joined(rank, options or LaunchOptions(), tell, progress or Progress())
    with _interruptible(joined):
        try:
            return joined.run(job_name(job), argument)
        except Interrupted as stop:
            return Outcome(signal=stop.number)


class _Joined:
    """This rank's part in the watch of all over all."""

    def __init__(self, rank: Rank, options: LaunchOptions, tell: Tell, progress: Progress) -> None:
        self.rank = rank
        self.options = options
        self.tell = tell
        self.progress = progress
        self.link: Link | None = None
        self.successor = 1
        self.first_place: Place | None = None
        self.first_position = ""
        self.first_stopped_at: float | None = None
        self.is_over = False
        self.is_decided = False
        self._state = threading.Condition()
        self._ending: Outcome | None = None

    # ---- the main thread --------------------------------------------------------------------

    def run(self, job: str, argument: Callable[[], Any]) -> Outcome:
        from giantdsl.train.launch.monitor import Monitor
        from giantdsl.train.launch.rendezvous import leave_group, open_store, perform

        monitor: Monitor | None = None
        try:
            store = open_store(self.rank, self.options)
            if self.rank.rank == 0:
                monitor = Monitor(
                    self.rank.world,
                    self.rank.rendezvous.host,
                    silent_s=self.options.silent_s,
                    start_s=self.options.start_s,
                )
                monitor.start()
                store.set("watch", json.dumps(monitor.address))
            link = self._connect(store)
        except (GiantError, OSError, RuntimeError) as error:
            return self._never_joined(error)
        report, value = perform(
            self.rank, job, argument, lambda: store, self.progress, self.options
        )
        # Before the report: the answer may be quicker than the next line.
        with self._state:
            self.is_over = True
        link.channel.send(report)
        outcome = self._wait_for_all()
        if outcome.failure is None and outcome.signal is None:
            leave_group()
            outcome = Outcome.of(value, is_first=self.rank.rank == 0)
        link.close()
        if monitor is not None:
            monitor.join()
        return outcome

    def _connect(self, store: Store) -> Link:
        address = json.loads(store.get("watch"))
        self.first_place = Place(**address["first"])
        # Reached where the store was: that is the host of rank 0, or of the agent beside it.
        connection = socket.create_connection(
            (self.rank.rendezvous.host, address["port"]), timeout=self.options.start_s
        )
        connection.settimeout(None)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        channel = Channel(connection)
        hello = {"kind": "hello", "rank": self.rank.rank, "token": address["token"]}
        channel.send({**hello, "place": asdict(here())})
        link = Link(
            channel,
            self.progress,
            on_order=self._obey,
            on_lost=self._lost,
            on_beat=self._look_at_first,
            silent_s=self.options.silent_s,
        )
        self.link = link
        link.start()
        return link

    def _never_joined(self, error: Exception) -> Outcome:
        """Nobody watches yet. Rank 0 knows of its own troubles, and rank 1 of rank 0's."""
        failure = describe(error, self.rank.rank, socket.gethostname(), self.progress)
        self.tell(failure, self.rank.rank <= 1)
        return Outcome(failure=failure)

    def _wait_for_all(self) -> Outcome:
        with self._state:
            while self._ending is None:
                self._state.wait()
            return self._ending

    # ---- the link's thread ------------------------------------------------------------------

    def _obey(self, order: Message) -> None:
        assert self.link is not None, "orders come through the link"
        match order["kind"]:
            case "successor":
                self.successor = order["rank"]
            case "ping":
                self.first_position = order["position"]
            case "speak":
                self.tell(Failure(**order["failure"]), True)
                self.link.channel.send({"kind": "said"})
            case "abort":
                self.is_decided = True
                self.link.channel.send({"kind": "heard"})
                self._abort(order)
            case "bye":
                self.is_decided = True
                self._end(Outcome(signal=order["signal"]))

    def _abort(self, order: Message) -> None:
        if "failure" not in order:
            return self._end(Outcome(signal=order["signal"]))
        failure = Failure(**order["failure"])
        if "hung" in order:
            kill_if_here(Place(**order["hung"]))
        if order["speaker"] != self.rank.rank:
            self.tell(failure, False)
        if failure.rank != self.rank.rank:
            time.sleep(_LATER_S)
        return self._end(Outcome(failure=failure))

    def _end(self, outcome: Outcome) -> None:
        """Let the main thread return, or end the process where it is still in its job."""
        with self._state:
            if self.is_over:
                self._ending = outcome
                self._state.notify()
                return
        os._exit(outcome.exit_code)

    def _lost(self, how: str) -> None:
        self._first_is_lost(Failure(0, SILENT if "sign" in how else DIED, self._in_words(how)))

    def _in_words(self, how: str) -> str:
        if "sign" in how:
            return how
        return f"its process ended without a word (killed, or its host is gone): {how}"

    def _first_is_lost(self, failure: Failure) -> None:
        """Rank 0, which would give the verdict, is what failed: the successor speaks."""
        if self.is_decided:
            return
        self.is_decided = True
        if self.rank.rank == 0:
            os._exit(1)
        if self.first_place is not None:
            host, at = self.first_place.host, self.first_position
            failure = Failure(0, failure.kind, failure.text, host, at)
            kill_if_here(self.first_place)
        is_speaker = self.rank.rank == self.successor
        if not is_speaker:
            time.sleep(_SPOKEN_S)  # A launcher ends all when the first process is gone.
        self.tell(failure, is_speaker)
        self._end(Outcome(failure=failure))

    def _look_at_first(self) -> None:
        """With each beat, the successor looks whether rank 0 stands still."""
        if self.rank.rank != self.successor or self.first_place is None:
            return
        if not is_stopped(self.first_place):
            self.first_stopped_at = None
            return
        now = time.monotonic()
        self.first_stopped_at = self.first_stopped_at or now
        if now - self.first_stopped_at >= 2.0:
            text = f"process {self.first_place.pid} is stopped (SIGSTOP)"
            self._first_is_lost(Failure(0, STOPPED, text))


@contextmanager
def _interruptible(joined: _Joined) -> Iterator[None]:
    """Let SIGTERM and Ctrl-C raise Interrupted in a job that has no handlers of its own.

    Without a handler, a launcher's SIGTERM would end ranks before the reason is known.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: object) -> None:
        # What ends a job that is over is the verdict on all ranks.
        if not joined.is_over:
            raise Interrupted(number)

    usual = (signal.SIG_DFL, signal.default_int_handler)
    before = {
        number: signal.signal(number, interrupt)
        for number in (signal.SIGINT, signal.SIGTERM)
        if signal.getsignal(number) in usual
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
