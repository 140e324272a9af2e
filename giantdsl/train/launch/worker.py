"""The program of a rank that `run_local` started. Not for people: see `local.py`."""

from __future__ import annotations

import argparse
import base64
import os
import pickle
import socket
import sys
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

from giantdsl.train.launch.board import Board
from giantdsl.train.launch.channel import Channel, Message
from giantdsl.train.launch.context import Payload
from giantdsl.train.launch.environment import Rank
from giantdsl.train.launch.failure import FAULT, Failure, Interrupted, Progress
from giantdsl.train.launch.link import Inbox, Link, Signals
from giantdsl.train.launch.place import die_with_parent, here

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store


class Worker:
    """One rank: its line to the parent, and what it does until the parent lets it go."""

    def __init__(self, rank: Rank, payload: Payload, channel: Channel, board: Board) -> None:
        self.rank = rank
        self.payload = payload
        self.progress = Progress(show=partial(board.write, rank.local_rank))
        self.signals = Signals()
        self.inbox = Inbox()
        self.link = Link(
            channel, self.progress, on_order=self._obey, on_lost=lambda how: os._exit(1)
        )

    def run(self) -> int:
        """The exit code."""
        try:
            self.signals.install()
            self.link.channel.send({"kind": "hello", "place": asdict(here())})
            self.link.start()
            report = self._alone() if self.payload.is_alone else self._among_hosts()
        except Interrupted as stop:
            report = {"kind": "interrupted", "signal": stop.number}
        self.signals.ignore()
        sys.stdout.flush()
        self.link.channel.send(report)
        if report["kind"] == "ended":
            return 1
        self.inbox.wait("bye")
        if self.payload.is_alone and report["kind"] == "done":
            from giantdsl.train.launch.rendezvous import leave_group

            leave_group()
        self.link.close()
        return 0

    def _obey(self, order: Message) -> None:
        match order["kind"]:
            case "abort":
                os._exit(1)
            case "signal":
                self.signals.pass_on(order["number"])
            case _:
                self.inbox.put(order)

    def _argument(self) -> Any:
        return pickle.loads(self.payload.argument)

    # ---- one host ---------------------------------------------------------------------------

    def _alone(self) -> Message:
        from giantdsl.train.launch.rendezvous import perform

        payload = self.payload
        report, value = perform(
            self.rank, payload.job, self._argument, self._store, self.progress, payload.options
        )
        return self._with_value(report, value)

    def _store(self) -> Store:
        """Rank 0 opens it; the parent tells the others its port."""
        from giantdsl.train.launch.rendezvous import LOOPBACK, join_store, open_loopback_store

        start_s = self.payload.options.start_s
        if self.rank.rank == 0:
            store, port = open_loopback_store(start_s)
            self.link.channel.send({"kind": "store", "port": port})
            return store
        found = self.inbox.wait("store")
        assert found is not None, "waited without a limit"
        return join_store(LOOPBACK, found["port"], start_s)

    def _with_value(self, report: Message, value: Any) -> Message:
        if report["kind"] != "done" or self.rank.rank != 0:
            return report
        try:
            return {**report, "value": base64.b64encode(pickle.dumps(value)).decode()}
        except Exception as error:
            text = f"what the job returned cannot be handed on: {error}"
            failure = Failure(0, FAULT, text, socket.gethostname())
            return {"kind": "error", "failure": failure.as_json()}

    # ---- many hosts -------------------------------------------------------------------------

    def _among_hosts(self) -> Message:
        from giantdsl.train.launch.joined import run_as_rank

        outcome = run_as_rank(
            self.rank,
            self.payload.job,
            self._argument,
            self.payload.options,
            tell=self._tell,
            progress=self.progress,
        )
        if outcome.failure is not None:
            # The parent knows already, through `_tell`.
            return {"kind": "ended"}
        if outcome.signal is not None and outcome.value is None:
            return {"kind": "interrupted", "signal": outcome.signal}
        return self._with_value({"kind": "done"}, outcome.value)

    def _tell(self, failure: Failure, is_speaker: bool) -> None:
        self.link.channel.send(
            {"kind": "verdict", "failure": failure.as_json(), "is_speaker": is_speaker}
        )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("rank", "parent", "control", "payload", "board"):
        parser.add_argument(f"--{name}", required=True, type=int)
    given = parser.parse_args(arguments)
    die_with_parent(given.parent)
    os.set_inheritable(given.control, False)
    payload = _read_payload(given.payload)
    sys.path[:] = payload.path
    channel = Channel(socket.socket(fileno=given.control))
    board = Board(given.board, len(payload.ranks))
    os.close(given.board)
    return Worker(payload.ranks[given.rank], payload, channel, board).run()


def _read_payload(handle: int) -> Payload:
    # The ranks of a host share the file and its position, so it is read at a fixed place.
    data = os.pread(handle, os.fstat(handle).st_size, 0)
    os.close(handle)
    payload: Payload = pickle.loads(data)
    return payload


if __name__ == "__main__":
    raise SystemExit(main())
