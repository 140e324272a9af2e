"""Standing by the processes of a job: events on time, one deadline, all exit codes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .faults import perform
from .system import send_signal

if TYPE_CHECKING:
    from .emulated import Cluster

TIMEOUT_CODE = 124  # as timeout(1)
Process = subprocess.Popen[bytes]
Sink = Callable[[str, str], None]
_POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class Result:
    """How a job ended. `codes` are exit codes by label ('h0', 'r3'); `events` as carried out."""

    codes: dict[str, int]
    seconds: float
    timed_out: bool
    events: list[tuple[float, str]]

    @property
    def is_ok(self) -> bool:
        return not self.timed_out and not any(self.codes.values())

    @property
    def code(self) -> int:
        """The first that is not 0."""
        if self.timed_out:
            return TIMEOUT_CODE
        return next((code for code in self.codes.values() if code), 0)


def print_line(label: str, line: str) -> None:
    sys.stdout.write(f"[{label}] {line}")
    sys.stdout.flush()


def start_pumps(processes: Mapping[str, Process], sink: Sink) -> list[threading.Thread]:
    """A thread a process, which hands its lines of output to `sink(label, line)`."""
    pumps = []
    for label, process in processes.items():
        pump = threading.Thread(target=_pump, args=(label, process, sink), daemon=True)
        pump.start()
        pumps.append(pump)
    return pumps


def _pump(label: str, process: Process, sink: Sink) -> None:
    assert process.stdout is not None
    with process.stdout as lines:
        for line in lines:
            sink(label, line.decode(errors="replace"))


def stand_by(
    cluster: Cluster,
    processes: Mapping[str, Process],
    events: Sequence[tuple[float, str]] = (),
    timeout_s: float | None = None,
    grace_s: float | None = None,
) -> Result:
    """Wait for all, carrying out events (seconds from now, action).

    When one has failed the others get `grace_s` to end by themselves; None: until the timeout.
    """
    begin = time.monotonic()
    deadline = begin + timeout_s if timeout_s else float("inf")
    todo, done = sorted(events), list[tuple[float, str]]()
    codes: dict[str, int] = {}
    while len(codes) < len(processes) and time.monotonic() <= deadline:
        elapsed = time.monotonic() - begin
        while todo and todo[0][0] <= elapsed:
            action = todo.pop(0)[1]
            perform(cluster, action)
            done.append((round(elapsed, 3), action))
        for label, process in processes.items():
            if label not in codes and process.poll() is not None:
                codes[label] = process.returncode
                if process.returncode and grace_s is not None:
                    deadline = min(deadline, time.monotonic() + grace_s)
        time.sleep(_POLL_S)
    timed_out = len(codes) < len(processes)
    if timed_out:
        kill_all(cluster, processes)
    for label, process in processes.items():
        process.wait()
        codes.setdefault(label, TIMEOUT_CODE)
    return Result(codes, time.monotonic() - begin, timed_out, done)


def kill_all(cluster: Cluster, processes: Mapping[str, Process]) -> None:
    """The processes, and whatever else runs in the hosts."""
    for process in processes.values():
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    for host in cluster.hosts:
        if host.namespace.is_alive:
            for pid in list(host.pids()):
                send_signal(pid, signal.SIGKILL)
