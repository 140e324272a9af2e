"""Messages over a socket: one JSON object a line."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

Message = dict[str, Any]

_MAX_MESSAGE_BYTES = 1 << 28


class Channel:
    """One end of a line between a rank and what watches it. Any thread may send."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self._sending = threading.Lock()
        self._rest = b""

    def send(self, message: Message) -> bool:
        """False where the other end is gone: whoever reads this end learns the same."""
        try:
            with self._sending:
                self.socket.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            return False
        return True

    def receive(self) -> list[Message] | None:
        """What came with one read, perhaps nothing whole yet; None: the other end is gone.

        Raises ValueError for what is no message.
        """
        try:
            data = self.socket.recv(1 << 16)
        except OSError:
            return None
        if not data:
            return None
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _MAX_MESSAGE_BYTES:
            raise ValueError("a message without end")
        messages = [json.loads(line) for line in lines]
        if not all(isinstance(message, dict) for message in messages):
            raise ValueError("a message that is no object")
        return messages

    def messages(self) -> Iterator[Message]:
        """All that come, until the other end is gone."""
        while (received := self.receive()) is not None:
            yield from received

    def close(self) -> None:
        self.socket.close()
