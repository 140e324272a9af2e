"""What the emulated link between hosts 0 and 1 gives. Run once a host:

    python -m benchmarks.cluster --hosts 2 --bandwidth 1gbit -- python benchmarks/cluster/linkcheck.py

Host 0 prints one JSON line: TCP goodput each way alone and both ways at once in MB/s, and the round
trip of 64 bytes and of 16 KiB in microseconds. $SECONDS is how long each flow lasts (1.5).
`iperf3 --bidir` would not do: it has one thread, which both directions then share.
"""

from __future__ import annotations

import json
import os
import socket
import statistics
import threading
import time
from dataclasses import dataclass

_CHUNK = 1 << 18
_CONNECT_TRIES = 200


@dataclass(frozen=True, slots=True)
class Side:
    """One end of the check: host 0 listens at `address`, host 1 connects to it."""

    host: int
    address: str
    seconds: float

    def connect(self, port: int) -> socket.socket:
        stream = self._accept(port) if self.host == 0 else self._reach(port)
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return stream

    def _accept(self, port: int) -> socket.socket:
        with socket.create_server((self.address, port)) as server:
            return server.accept()[0]

    def _reach(self, port: int) -> socket.socket:
        for _ in range(_CONNECT_TRIES):
            try:
                return socket.create_connection((self.address, port))
            except OSError:
                time.sleep(0.02)
        raise SystemExit(f"linkcheck: nobody listens on {self.address}:{port}")

    def flow(self, port: int, sender: int) -> float:
        """Goodput in bytes/s, at the receiver; 0 at the sender."""
        with self.connect(port) as stream:
            if self.host != sender:
                return self._receive(stream)
            end = time.monotonic() + self.seconds
            while time.monotonic() < end:
                stream.sendall(bytes(_CHUNK))
            stream.shutdown(socket.SHUT_WR)
            stream.recv(1)
            return 0.0

    def _receive(self, stream: socket.socket) -> float:
        """Counted from a fifth of the time on, when the window has opened."""
        buffer, total, begin = bytearray(1 << 20), 0, time.monotonic()
        mark: tuple[float, int] | None = None
        while read := stream.recv_into(buffer):
            total += read
            if mark is None and time.monotonic() - begin > 0.2 * self.seconds:
                mark = time.monotonic(), total
        assert mark is not None, "the flow ended before it was measured"
        return (total - mark[1]) / (time.monotonic() - mark[0])

    def round_trip(self, port: int, size: int, count: int) -> float:
        """Median seconds."""
        times = []
        with self.connect(port) as stream:
            for _ in range(count):
                begin = time.perf_counter()
                if self.host == 0:
                    stream.sendall(bytes(size))
                _receive_exactly(stream, size)
                if self.host == 1:
                    stream.sendall(bytes(size))
                times.append(time.perf_counter() - begin)
        return statistics.median(times)

    def both_ways(self) -> float:
        """Goodput of one way while the other is as busy."""
        opposite = threading.Thread(target=self.flow, args=(7005, 0))
        opposite.start()
        rate = self.flow(7004, 1)
        opposite.join()
        return rate


def _receive_exactly(stream: socket.socket, size: int) -> None:
    while size:
        got = len(stream.recv(min(size, 1 << 20)))
        if not got:
            raise SystemExit("linkcheck: the other side closed the connection")
        size -= got


def main() -> None:
    address = os.environ["HOST_ADDRS"].split(",")[0]
    seconds = float(os.environ.get("SECONDS", "1.5"))
    side = Side(int(os.environ["HOST_RANK"]), address, seconds)
    if side.host > 1:
        return
    found = {
        "rtt_us_64B": side.round_trip(7001, 64, 400) * 1e6,
        "rtt_us_16KiB": side.round_trip(7002, 16384, 60) * 1e6,
        "one_way_MBps": side.flow(7003, 1) / 1e6,
        "both_ways_MBps_per_way": side.both_ways() / 1e6,
    }
    if side.host == 0:
        print(json.dumps({key: round(value, 1) for key, value in found.items()}), flush=True)


if __name__ == "__main__":
    main()
