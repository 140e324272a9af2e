"""A rank's line to whoever watches it: heartbeats out, orders in. A thread of its own."""

from __future__ import annotations

import os
import queue
import selectors
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType

from giantdsl.train.launch.channel import Channel, Message
from giantdsl.train.launch.failure import Interrupted, Progress

_BEAT_S = 1.0


class Link:
    """Sends a beat every second, and hands on what comes.

    `on_order` gets each message in the link's thread: the main thread may hang in a collective.
    `on_lost` is called once, when the other end is gone or was silent for `silent_s`. `on_beat`
    is called with every beat.
    """

    def __init__(
        self,
        channel: Channel,
        progress: Progress,
        *,
        on_order: Callable[[Message], None],
        on_lost: Callable[[str], None],
        on_beat: Callable[[], None] | None = None,
        silent_s: float | None = None,
    ) -> None:
        self.channel = channel
        self._progress = progress
        self._on_order = on_order
        self._on_lost = on_lost
        self._on_beat = on_beat
        self._silent_s = silent_s
        self._main = threading.main_thread().ident
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="giantdsl-link", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """No more beats; a connection that ends now is no loss."""
        self._closed.set()
        self.channel.close()

    def _run(self) -> None:
        last_beat = 0.0
        heard_at = time.monotonic()
        with selectors.DefaultSelector() as selector:
            selector.register(self.channel.socket, selectors.EVENT_READ)
            while not self._closed.is_set():
                now = time.monotonic()
                if now - last_beat >= _BEAT_S:
                    if now - last_beat > 5 * _BEAT_S:
                        heard_at = now  # This process itself stood still.
                    last_beat = now
                    self._beat()
                if selector.select(max(0.0, last_beat + _BEAT_S - time.monotonic())):
                    orders = self.channel.receive()
                    if orders is None:
                        return self._lose("its connection broke")
                    heard_at = time.monotonic()
                    for order in orders:
                        self._on_order(order)
                elif self._silent_s is not None and now - heard_at > self._silent_s:
                    return self._lose(f"no sign of life for {self._silent_s:.0f} s")
        return None

    def _beat(self) -> None:
        position, frame = str(self._progress), self._frame()
        self.channel.send({"kind": "beat", "position": position, "frame": frame})
        if self._on_beat is not None:
            self._on_beat()

    def _frame(self) -> str:
        """Where the main thread is: `file.py:12 in name`."""
        frame = sys._current_frames().get(self._main or 0)
        if frame is None:
            return ""
        code = frame.f_code
        return f"{Path(code.co_filename).name}:{frame.f_lineno} in {code.co_name}"

    def _lose(self, how: str) -> None:
        if not self._closed.is_set():
            self._on_lost(how)


class Inbox:
    """What the main thread waits for, by kind of message."""

    def __init__(self) -> None:
        self._queues: dict[str, queue.SimpleQueue[Message]] = {}
        self._lock = threading.Lock()

    def put(self, message: Message) -> None:
        self._queue(message["kind"]).put(message)

    def wait(self, kind: str, timeout_s: float | None = None) -> Message | None:
        """None where none came in time."""
        try:
            return self._queue(kind).get(timeout=timeout_s)
        except queue.Empty:
            return None

    def _queue(self, kind: str) -> queue.SimpleQueue[Message]:
        with self._lock:
            return self._queues.setdefault(kind, queue.SimpleQueue())


class Signals:
    """Ctrl-C and SIGTERM for a job without handlers of its own: they raise Interrupted.

    A signal may come twice: from whoever sent it to all processes, and passed on by the parent.
    `pass_on` delivers it once.
    """

    def __init__(self) -> None:
        self._seen: set[int] = set()
        self._read, self._write = socket.socketpair()
        self._read.settimeout(0.0)
        self._write.setblocking(False)

    def install(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, _interrupt)
        # The system's part of a handler writes here at once, also while the main thread hangs.
        signal.set_wakeup_fd(self._write.fileno(), warn_on_full_buffer=False)

    def ignore(self) -> None:
        """The job is over: a signal has nothing to interrupt any more."""
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)

    def pass_on(self, number: int) -> None:
        """Called in the link's thread."""
        self._read.settimeout(0.3)
        with suppress(TimeoutError):
            self._seen.update(self._read.recv(64))
        if number not in self._seen:
            os.kill(os.getpid(), number)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise Interrupted(number)
