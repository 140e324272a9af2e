"""The watch over ranks that a launcher started, on any number of hosts. A thread in rank 0.

Every rank, the first too, holds a connection to it. The system closes that of a process that
ends, however it ends: a rank that was killed is known at once, and a busy one is not taken for
dead. Orders: `successor` (who speaks if rank 0 is lost), `ping`, `speak` (tell people of this
failure, then answer `said`), `abort`, `bye`.
"""

from __future__ import annotations

import secrets
import selectors
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from giantdsl.train.launch.channel import Channel, Message
from giantdsl.train.launch.failure import DIED, SILENT, STOPPED, Failure
from giantdsl.train.launch.place import here, is_stopped, kill_if_here
from giantdsl.train.launch.watch import Verdict, Watch

_POLL_S = 0.1
_SAID_S = 2.0
_LEAVE_S = 3.0
_BYE_S = 10.0


@dataclass(slots=True)
class _Peer:
    """One connection; `rank` None until it has said hello with the job's token."""

    channel: Channel
    rank: int | None = None
    is_gone: bool = False


class Monitor:
    """Opens its port when made; `start` begins to watch `world` ranks."""

    def __init__(self, world: int, host: str, *, silent_s: float, start_s: float) -> None:
        now = time.monotonic()
        self._watch = Watch(range(world), now, silent_s=silent_s, start_s=start_s)
        self._server = _listen(host)
        self._token = secrets.token_hex(16)
        self._peers: dict[int, _Peer] = {}
        self._has_said = False
        self._heard: set[int] = set()
        self._has_successor = False
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._server, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name="giantdsl-monitor", daemon=True)

    @property
    def address(self) -> dict[str, Any]:
        """What a rank needs to connect."""
        port = self._server.getsockname()[1]
        return {"port": port, "token": self._token, "first": asdict(here())}

    def start(self) -> None:
        self._thread.start()

    def join(self) -> None:
        """Until every other rank has left."""
        self._thread.join()

    # ---- the thread -------------------------------------------------------------------------

    def _run(self) -> None:
        checked_at = 0.0
        verdict = None
        try:
            while verdict is None:
                self._turn()
                now = time.monotonic()
                if now - checked_at >= 1.0:
                    checked_at = now
                    self._look(now)
                verdict = self._watch.verdict(now)
            self._conclude(verdict)
        finally:
            self._selector.close()
            self._server.close()

    def _turn(self) -> None:
        for key, _ in self._selector.select(_POLL_S):
            if key.data is None:
                self._accept()
            else:
                self._read(key.data)

    def _accept(self) -> None:
        with suppress(OSError):  # A caller that hung up before it was heard.
            connection, _ = self._server.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            # One slow reader must not hold up what the others have to hear.
            connection.settimeout(_SAID_S)
            self._selector.register(connection, selectors.EVENT_READ, _Peer(Channel(connection)))

    def _read(self, peer: _Peer) -> None:
        try:
            messages = peer.channel.receive()
            for message in messages or ():
                self._hear(peer, message)
        except (ValueError, KeyError, TypeError):
            messages = None  # Not one of ours, or broken: as if it had hung up.
        if messages is None:
            self._drop(peer)

    def _hear(self, peer: _Peer, message: Message) -> None:
        now = time.monotonic()
        if peer.rank is None:
            if not secrets.compare_digest(message["token"], self._token):
                raise ValueError("a stranger")
            peer.rank = message["rank"]
            self._peers[message["rank"]] = peer
        if message["kind"] == "said":
            self._has_said = True
        elif message["kind"] == "heard":
            self._heard.add(peer.rank)
        elif message["kind"] == "error":
            # Clocks of hosts differ: what counts is when it was heard of.
            failure = {**message["failure"], "at": time.time()}
            self._watch.on_message(peer.rank, {**message, "failure": failure}, now)
        else:
            self._watch.on_message(peer.rank, message, now)

    def _drop(self, peer: _Peer) -> None:
        self._selector.unregister(peer.channel.socket)
        peer.channel.close()
        peer.is_gone = True
        if peer.rank is not None:
            text = "its process ended without a word (killed, or its host is gone)"
            self._watch.add(Failure(peer.rank, DIED, text), time.monotonic())

    def _look(self, now: float) -> None:
        states = self._watch.ranks
        for rank, state in states.items():
            if state.place is not None:
                self._watch.on_stopped(rank, is_stopped(state.place), now)
        self._watch.check(now)
        if not self._has_successor and all(s.status != "starting" for s in states.values()):
            self._has_successor = True
            self._send_all(self._successor())
        else:
            self._send_all({"kind": "ping", "position": states[0].position})

    def _successor(self) -> Message:
        """Who speaks if rank 0 is lost: a rank on another host, which may be lost as a whole."""
        states = self._watch.ranks
        others = [r for r, state in states.items() if state.host != states[0].host]
        return {"kind": "successor", "rank": others[0] if others else 1}

    def _send_all(self, message: Message, *, but: int | None = None) -> None:
        for rank, peer in sorted(self._peers.items()):
            if rank != but and not peer.is_gone:
                peer.channel.send(message)

    # ---- the end ----------------------------------------------------------------------------

    def _conclude(self, verdict: Verdict) -> None:
        # Rank 0 last: with its process the store ends, and with it the orders still under way.
        if verdict.failure is None and all(s.is_over for s in self._watch.ranks.values()):
            order: Message = {"kind": "bye", "signal": verdict.signal}
            self._send_all(order, but=0)
            self._wait(lambda: self._are_gone(set()), _BYE_S)
        else:
            order = {"kind": "abort", "signal": verdict.signal}
            if verdict.failure is not None:
                order = self._abort(verdict.failure)
            self._send_all(order, but=0)
            self._wait(lambda: self._are_gone(self._heard), _LEAVE_S)
        if 0 in self._peers:
            self._peers[0].channel.send(order)

    def _abort(self, failure: Failure) -> Message:
        """Have somebody speak, and tell the others who did. A process that hangs is killed by
        the ranks of its host: not every launcher does."""
        order = {"kind": "abort", "speaker": self._speak(failure), "failure": failure.as_json()}
        place = None if failure.rank is None else self._watch.ranks[failure.rank].place
        if place is not None and failure.kind in (STOPPED, SILENT):
            order["hung"] = asdict(place)
            kill_if_here(place)
        return order

    def _are_gone(self, but: set[int]) -> bool:
        return all(p.is_gone or r == 0 or r in but for r, p in self._peers.items())

    def _speak(self, failure: Failure) -> int:
        """Have one rank tell people: the one it is about, or rank 0 where that cannot."""
        about = failure.rank if failure.rank is not None else 0
        can_speak = failure.kind not in (DIED, STOPPED, SILENT)
        for speaker in dict.fromkeys((about, 0) if can_speak else (0,)):
            peer = self._peers.get(speaker)
            if peer is None or peer.is_gone:
                continue
            self._has_said = False
            peer.channel.send({"kind": "speak", "failure": failure.as_json()})
            self._wait(lambda: self._has_said, _SAID_S)
            if self._has_said:
                return speaker
        return 0

    def _wait(self, is_met: Callable[[], bool], timeout_s: float) -> None:
        until = time.monotonic() + timeout_s
        while not is_met() and time.monotonic() < until:
            self._turn()


def _listen(host: str) -> socket.socket:
    """On a free port. Ranks on other hosts may know this one by another address than it does
    itself (`127.0.1.1` in /etc/hosts), so only a plain loopback address is taken literally."""
    if host == "localhost" or host.startswith("127."):
        return socket.create_server((host, 0), backlog=1024)
    if socket.has_dualstack_ipv6():
        return socket.create_server(
            ("", 0), family=socket.AF_INET6, backlog=1024, dualstack_ipv6=True
        )
    return socket.create_server(("", 0), backlog=1024)
