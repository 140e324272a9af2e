"""A delay line in user space: two TAP devices and a process that passes packets on, later."""

from __future__ import annotations

import collections
import contextlib
import ctypes
import fcntl
import os
import select
import signal
import struct
import time
from typing import NoReturn

from .system import die_with_parent

_TUNSETIFF, _TUNSETOFFLOAD = 0x400454CA, 0x400454D0
_IFF_TAP, _IFF_NO_PI, _IFF_VNET_HDR = 0x0002, 0x1000, 0x4000
_CSUM_AND_TSO = 0x01 | 0x02 | 0x04  # packets of up to 64 KiB, not 1500 bytes
_CLONE_NEWNET = 0x40000000
_PR_SET_TIMERSLACK = 29
_OVERHEAD_S = 50e-6  # what a relay takes with no delay asked
_LARGEST_PACKET = 70_000
_PRIORITY = 10


class Relay:
    """A cable of `delay_s` between a device in one network namespace and one in another."""

    def __init__(self, pid_a: int, dev_a: str, pid_b: int, dev_b: str, delay_s: float) -> None:
        ready_read, ready_write = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            _serve(ready_write, ((pid_a, dev_a), (pid_b, dev_b)), delay_s)
        os.close(ready_write)
        started = os.read(ready_read, 1)
        os.close(ready_read)
        if started != b"1":
            os.waitpid(self._pid, 0)
            raise RuntimeError("the latency relay did not start (is /dev/net/tun there?)")

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)


def _serve(ready: int, ends: tuple[tuple[int, str], ...], delay_s: float) -> NoReturn:
    try:
        die_with_parent()
        os.setsid()
        taps = [_open_tap(pid, name) for pid, name in ends]
        ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1)
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(_PRIORITY))
        os.write(ready, b"1")
        _forward(taps, max(0.0, delay_s - _OVERHEAD_S))
    finally:
        os._exit(1)


def _open_tap(pid: int, name: str) -> int:
    with open(f"/proc/{pid}/ns/net") as namespace:
        if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")
    tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    flags = _IFF_TAP | _IFF_NO_PI | _IFF_VNET_HDR
    fcntl.ioctl(tap, _TUNSETIFF, struct.pack("16sH22x", name.encode(), flags))
    fcntl.ioctl(tap, _TUNSETOFFLOAD, _CSUM_AND_TSO)
    return tap


def _forward(taps: list[int], delay_s: float) -> NoReturn:
    other = {taps[0]: taps[1], taps[1]: taps[0]}
    waiting: collections.deque[tuple[float, int, bytes]] = collections.deque()
    now = time.monotonic
    while True:
        wait_s = max(0.0, waiting[0][0] - now()) if waiting else None
        for tap in select.select(taps, (), (), wait_s)[0]:
            due = now() + delay_s
            for _ in range(64):
                try:
                    packet = os.read(tap, _LARGEST_PACKET)
                except BlockingIOError:
                    break
                waiting.append((due, other[tap], packet))
        while waiting and waiting[0][0] <= now():
            _, tap, packet = waiting.popleft()
            # A port that is down loses the packet, as a cable would.
            with contextlib.suppress(OSError):
                os.write(tap, packet)
