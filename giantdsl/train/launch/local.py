"""Start the ranks of this host, stand by them, end them together."""

from __future__ import annotations

import base64
import os
import pickle
import selectors
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from giantdsl.errors import InternalError
from giantdsl.train.launch.board import Board
from giantdsl.train.launch.channel import Message
from giantdsl.train.launch.children import Child, start_child
from giantdsl.train.launch.context import Job, LaunchOptions, Payload, job_name
from giantdsl.train.launch.environment import Hosts, Rank, Rendezvous, child_environment
from giantdsl.train.launch.failure import (
    DIED,
    SETTINGS,
    Failure,
    Outcome,
    how_it_died,
    print_failure,
)
from giantdsl.train.launch.place import here, is_stopped, place_of
from giantdsl.train.launch.watch import Settle, Verdict, Watch

_POLL_S = 0.1
_ABORT_S = 1.0
_LEAVE_S = 5.0
_EXIT_S = 10.0
_AMONG_HOSTS = Settle(failure_s=3.0, settings_s=3.0, consequence_s=3.0)
"""Ranks on many hosts find the verdict among themselves; here it is only waited for."""


def run_local(
    job: Job | str,
    argument: Any,
    *,
    nproc: int,
    run_dir: Path,
    options: LaunchOptions | None = None,
    hosts: Hosts | None = None,
    say: Callable[[Failure], None] = print_failure,
) -> Outcome:
    """Run `job(context, argument)` in `nproc` fresh processes, until all are done or one fails.

    Rank 0 of this host writes to this terminal, the others to `run_dir/logs/rank-N.log`. A
    failure is handed to `say` once, when no rank runs any more. Ctrl-C and SIGTERM are passed on
    once, for the job to save and return; a second one kills. Whatever happens, also to this
    process, no rank outlives it.

    Raises InternalError for a job or an argument that cannot be handed to other processes.
    """
    options = options or LaunchOptions()
    ranks = _numbered(nproc, hosts)
    payload = _payload(job, argument, options, ranks, is_alone=hosts is None or hosts.count == 1)
    parent = _Parent(payload, say)
    try:
        with parent.catching_signals():
            parent.start(run_dir / "logs")
            return parent.stand_by()
    finally:
        parent.end_all()


def _numbered(nproc: int, hosts: Hosts | None) -> dict[int, Rank]:
    """The ranks of this host, by number."""
    count, index = (1, 0) if hosts is None else (hosts.count, hosts.index)
    meeting = Rendezvous("", 0) if hosts is None else hosts.rendezvous
    first, world = index * nproc, count * nproc
    return {
        first + i: Rank(first + i, world, i, nproc, meeting, "giantdsl train") for i in range(nproc)
    }


def _payload(
    job: Job | str,
    argument: Any,
    options: LaunchOptions,
    ranks: dict[int, Rank],
    *,
    is_alone: bool,
) -> Payload:
    try:
        pickled = pickle.dumps(argument)
    except Exception as error:
        raise InternalError(f"the job's argument cannot be handed to ranks ({error})") from error
    path = [entry or os.getcwd() for entry in sys.path]
    return Payload(path, job_name(job), pickled, options, ranks, is_alone)


@dataclass(slots=True)
class _Elsewhere:
    """A verdict that the ranks of many hosts came to. `is_speaker`: it is ours to tell."""

    failure: Failure
    is_speaker: bool


class _Parent:
    """The children and the watch over them, from start to end."""

    def __init__(self, payload: Payload, say: Callable[[Failure], None]) -> None:
        self.payload = payload
        self.say = say
        self.children: dict[int, Child] = {}
        self.signals: list[int] = []
        self.passed_on: int | None = None
        self.elsewhere: _Elsewhere | None = None
        self.store: Message | None = None
        self.board: Board | None = None
        options = payload.options
        self.watch = Watch(
            payload.ranks,
            time.monotonic(),
            silent_s=options.silent_s,
            start_s=options.start_s,
            settle=None if payload.is_alone else _AMONG_HOSTS,
        )
        self.selector = selectors.DefaultSelector()

    # ---- start and end ----------------------------------------------------------------------

    def start(self, logs: Path) -> None:
        ranks = self.payload.ranks
        if len(ranks) > 1:
            logs.mkdir(parents=True, exist_ok=True)
        environment = child_environment(len(ranks), is_alone=self.payload.is_alone)
        with tempfile.TemporaryFile() as file, tempfile.TemporaryFile() as shared:
            pickle.dump(self.payload, file)
            file.flush()
            shared.truncate(Board.size_bytes(len(ranks)))
            self.board = Board(shared.fileno(), len(ranks))
            for number, rank in ranks.items():
                log = None if rank.local_rank == 0 else logs / f"rank-{number}.log"
                child = start_child(number, file, shared, log, environment)
                self.children[number] = child
                # Known before the rank says so itself: it may be stopped while it starts.
                self.watch.ranks[number].place = place_of(child.process.pid)
                self.selector.register(child.channel.socket, selectors.EVENT_READ, child)

    def end_all(self) -> None:
        for child in self.children.values():
            child.signal(signal.SIGKILL)
        for child in self.children.values():
            if not child.is_reaped:
                child.reap()
        self.selector.close()
        if self.board is not None:
            self.board.close()
            self.board = None

    # ---- the life of the job ----------------------------------------------------------------

    def stand_by(self) -> Outcome:
        checked_at = 0.0
        while True:
            self._listen(_POLL_S)
            now = time.monotonic()
            self._notice_deaths(now)
            if now - checked_at >= 1.0:
                checked_at = now
                self._look(now)
            if len(self.signals) > 1:
                self.end_all()
                return Outcome(signal=self.signals[-1])
            if self.signals and self.passed_on is None:
                self._pass_on(self.signals[0])
            if self.elsewhere is not None:
                return self._fail(self.elsewhere.failure, self.elsewhere.is_speaker)
            verdict = self.watch.verdict(now)
            if verdict is not None:
                return self._conclude(verdict)

    def _listen(self, timeout_s: float) -> None:
        for key, _ in self.selector.select(timeout_s):
            self._read(key.data)

    def _read(self, child: Child) -> bool:
        """One read of what it sent; False where its end of the line is closed."""
        try:
            messages = child.channel.receive()
        except ValueError:
            messages = None
        if messages is None:
            self.selector.unregister(child.channel.socket)
            return False
        for message in messages:
            self._hear(child, message)
        return True

    def _hear(self, child: Child, message: Message) -> None:
        self.watch.on_message(child.rank, message, time.monotonic())
        match message["kind"]:
            case "hello":
                if self.store is not None:
                    child.channel.send(self.store)
                if self.passed_on is not None:
                    child.channel.send({"kind": "signal", "number": self.passed_on})
            case "store":
                self.store = message
                for other in self.children.values():
                    if other.rank != child.rank:
                        other.channel.send(message)
            case "verdict":
                heard = _Elsewhere(Failure(**message["failure"]), message["is_speaker"])
                if self.elsewhere is None or heard.is_speaker:
                    self.elsewhere = heard

    def _notice_deaths(self, now: float) -> None:
        for child in self.children.values():
            code = child.exit_code()
            if code is None or self.watch.ranks[child.rank].is_over:
                continue
            registered = self.selector.get_map()
            while child.channel.socket in registered and self._has_more(child):
                pass
            if self.passed_on is not None and code == -self.passed_on:
                message = {"kind": "interrupted", "signal": self.passed_on}
                self.watch.on_message(child.rank, message, now)
            self._read_board()
            self.watch.add(Failure(child.rank, DIED, how_it_died(code), here().host), now)

    def _has_more(self, child: Child) -> bool:
        """Read what a dead rank said last; False when there is no more of it."""
        ready = {key.data.rank for key, _ in self.selector.select(0)}
        return child.rank in ready and self._read(child)

    def _read_board(self) -> None:
        """Newer than the last heartbeats."""
        if self.board is not None:
            for number, rank in self.payload.ranks.items():
                self.watch.ranks[number].position = self.board.read(rank.local_rank)

    def _look(self, now: float) -> None:
        self._read_board()
        for rank, state in self.watch.ranks.items():
            if state.place is not None:
                self.watch.on_stopped(rank, is_stopped(state.place), now)
        self.watch.check(now)

    def _pass_on(self, number: int) -> None:
        """Over the line, not as a signal: a rank that got the same one directly, as from SLURM,
        would take it for the second, which stops without saving."""
        self.passed_on = number
        for child in self.children.values():
            if self.watch.ranks[child.rank].status == "running":
                child.channel.send({"kind": "signal", "number": number})

    # ---- the end ----------------------------------------------------------------------------

    def _conclude(self, verdict: Verdict) -> Outcome:
        if verdict.failure is not None:
            return self._fail(verdict.failure, is_speaker=True)
        if verdict.signal is None or all(s.is_over for s in self.watch.ranks.values()):
            self._let_go()
        first = self.watch.ranks[min(self.watch.ranks)]
        value = None if first.value is None else pickle.loads(base64.b64decode(first.value))
        return Outcome.of(value, signal=verdict.signal)

    def _let_go(self) -> None:
        """The first rank last: it holds the store, which the others may still use."""
        first, *others = (self.children[number] for number in sorted(self.children))
        for group in (others, [first]):
            for child in group:
                child.channel.send({"kind": "bye"})
            self._wait_for(group, _EXIT_S)

    def _fail(self, failure: Failure, is_speaker: bool) -> Outcome:
        """Stop the others first: their output must not run through the message.

        With no SIGTERM in between: that is the user's wish to save, and what a rank would save
        with others missing is worth nothing.
        """
        if self.elsewhere is not None:
            # Rank 0 may still be telling the other hosts; the ranks end by themselves.
            self._wait_for(list(self.children.values()), _LEAVE_S)
        for child in self.children.values():
            child.channel.send({"kind": "abort"})
        self._wait_for(list(self.children.values()), _ABORT_S)
        self.end_all()
        failure = self._better_known(failure)
        if failure.rank in self.children and failure.kind != SETTINGS:
            failure = failure.with_details(self.children[failure.rank].log_end())
        if is_speaker:
            self.say(failure)
        else:
            print(f"stopped, because of {failure.headline}", file=sys.stderr)
        return Outcome(failure=failure)

    def _better_known(self, failure: Failure) -> Failure:
        """How a rank of this host died is seen here only: elsewhere its connection broke."""
        return next(
            (f for f in self.watch.failures if f.rank == failure.rank and failure.kind == DIED),
            failure,
        )

    def _wait_for(self, children: list[Child], timeout_s: float) -> None:
        until = time.monotonic() + timeout_s
        while time.monotonic() < until and any(c.exit_code() is None for c in children):
            time.sleep(0.01)

    # ---- signals ----------------------------------------------------------------------------

    @contextmanager
    def catching_signals(self) -> Iterator[None]:
        """Outside the main thread Python delivers none."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        wanted: dict[int, Callable[[int, FrameType | None], None]] = {
            signal.SIGINT: self._note,
            signal.SIGTERM: self._note,
        }
        if signal.getsignal(signal.SIGTSTP) is signal.SIG_DFL:
            wanted[signal.SIGTSTP] = self._stand_still
        before = {number: signal.signal(number, handler) for number, handler in wanted.items()}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.signals.append(number)

    def _stand_still(self, number: int, frame: FrameType | None) -> None:
        """Ctrl-Z: the ranks stand still as long as this process does."""
        for child in self.children.values():
            child.signal(signal.SIGSTOP)
        os.kill(os.getpid(), signal.SIGSTOP)
        for child in self.children.values():
            child.signal(signal.SIGCONT)
