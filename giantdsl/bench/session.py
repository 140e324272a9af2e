"""The ranks of a run, asked together: who answers what, who failed, who is silent. No torch."""

from __future__ import annotations

import pickle
import socket
import tempfile
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Protocol, Self

from giantdsl.bench.cells import Cell, Shape
from giantdsl.bench.protocol import At, CopyRate, Failed, Measure, Setup, Times
from giantdsl.errors import RuntimeFault

START_S = 300.0
"""Importing torch takes seconds; the first rank may have a backend to build."""
_GROUP_S = 60.0
_SILENT_S = 90.0
_ONE_LINE = 400


class Spawner(Protocol):
    """Starts rank processes somewhere and ends them."""

    def start(self, rank: int, handle: int) -> None:
        """Run `python -m giantdsl.bench.rank HANDLE`, which inherits the handle."""

    def stop(self) -> None:
        """End what was started, whatever it is doing."""


class BackendFailed(RuntimeFault):
    """A backend broke or hung. The ranks are gone."""

    def __init__(self, backend: str, message: str) -> None:
        super().__init__(f"{backend}: {message}" if backend else message)
        self.backend, self.message = backend, message


class BenchRanks:
    """Ranks of a shape; they live until `close`, or until a backend fails."""

    def __init__(self, shape: Shape, backends: Sequence[str], spawner: Spawner) -> None:
        """Starts them. Raises BackendFailed."""
        self.shape, self.backends = shape, tuple(backends)
        self._spawner = spawner
        self._folder = tempfile.TemporaryDirectory(prefix="giantdsl-bench-")
        self._pipes: list[Connection] = []
        try:
            for rank in range(shape.ranks):
                self._start(rank)
            self._collect(START_S)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()

    def close(self) -> None:
        """End all ranks. May be called again."""
        for pipe in self._pipes:
            pipe.close()
        self._pipes = []
        self._spawner.stop()
        self._folder.cleanup()

    def measure(
        self, cell: Cell, backends: Sequence[str], rounds: int, budget_s: float
    ) -> list[dict[str, Times]]:
        """Each rank's times by backend. Raises BackendFailed."""
        request = Measure(cell, tuple(backends), rounds, budget_s)
        answers: list[dict[str, Times]] = self._ask([request] * self.shape.ranks)
        return answers

    def copy_rate(self, num_bytes: int, cores: int, tries: int = 3) -> float:
        """Bytes/s that the ranks of one host copy together; the best try."""
        busy = min(self.shape.local, cores)
        requests = [CopyRate(num_bytes, rank < busy) for rank in range(self.shape.ranks)]
        return max(sum(self._ask(requests)) for _ in range(tries))

    def _start(self, rank: int) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._spawner.start(rank, theirs.fileno())
        pipe = Connection(ours.detach())
        self._pipes.append(pipe)
        store = str(Path(self._folder.name) / "store")
        setup = Setup(rank, self.shape.ranks, self.backends, store, _GROUP_S)
        pipe.send_bytes(pickle.dumps(setup))

    def _ask(self, requests: Sequence[Any]) -> list[Any]:
        for pipe, request in zip(self._pipes, requests, strict=True):
            pipe.send_bytes(pickle.dumps(request))
        return self._collect(_SILENT_S)

    def _collect(self, silent_s: float) -> list[Any]:
        """One answer of every rank; nobody may be silent for longer than `silent_s`."""
        answers: dict[int, Any] = {}
        where = dict.fromkeys(range(self.shape.ranks), "")
        numbers = {pipe: rank for rank, pipe in enumerate(self._pipes)}
        deadline = time.monotonic() + silent_s
        while len(answers) < len(numbers):
            waiting = [pipe for pipe, rank in numbers.items() if rank not in answers]
            ready = wait(waiting, max(0.0, deadline - time.monotonic()))
            if not ready:
                self._fail_silent([numbers[pipe] for pipe in waiting], where, silent_s)
            for pipe in ready:
                assert isinstance(pipe, Connection)
                rank = numbers[pipe]
                message = self._receive(rank, pipe, where[rank])
                deadline = time.monotonic() + silent_s
                if isinstance(message, At):
                    where[rank] = message.backend
                else:
                    answers[rank] = message
        return [answers[rank] for rank in range(self.shape.ranks)]

    def _receive(self, rank: int, pipe: Connection, backend: str) -> Any:
        try:
            message = pickle.loads(pipe.recv_bytes())
        except (EOFError, ConnectionError) as error:
            self.close()
            raise BackendFailed(backend, f"rank {rank} died") from error
        if isinstance(message, Failed):
            self.close()
            text = " ".join(message.message.split())
            raise BackendFailed(message.backend, f"rank {rank}: {text[:_ONE_LINE]}")
        return message

    def _fail_silent(self, silent: list[int], where: dict[int, str], silent_s: float) -> None:
        self.close()
        names = ", ".join(str(rank) for rank in silent)
        raise BackendFailed(where[silent[0]], f"rank {names} did not answer in {silent_s:.0f} s")
