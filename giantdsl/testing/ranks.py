"""A pool of ranks: processes that are started once and run functions together.

For tests and for `giantdsl verify`: importing torch costs seconds, joining a group milliseconds.
Ranks meet over a file, so there is no port to collide on.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import TracebackType
from typing import Any

from giantdsl.backends.choose import choose_backend
from giantdsl.errors import GiantError, RuntimeFault

START_S = 120.0
"""A rank that has not imported torch by then never will."""


class RankPool:
    """`size` processes. `run(function, …)` calls a top-level function on the first n of them.

    Their group is one of `backend`, None: of what GIANTDSL_TEST_BACKEND names, else of what
    `giantdsl train` takes for tensors on the CPU.
    """

    def __init__(self, size: int, threads: int = 1, backend: str | None = None) -> None:
        self.size, self._threads = size, threads
        self.backend = (
            backend or os.environ.get("GIANTDSL_TEST_BACKEND") or choose_backend("cpu").name
        )
        self._folder = tempfile.TemporaryDirectory(prefix="giantdsl-ranks-")
        self._ranks: list[_Rank] = []
        self._calls = 0

    def __enter__(self) -> RankPool:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def run(
        self,
        function: Callable[..., Any],
        *args: Any,
        ranks: int | None = None,
        timeout_s: float = 60.0,
    ) -> list[Any]:
        """Results of `function(rank, world, *args)` in rank order; `ranks` None means all.

        The ranks have a default group of their own for the call. Raises RuntimeFault
        with the first failing rank's traceback, or naming those that did not answer in time;
        the others are stopped then, and the next call starts them anew.
        """
        world = self.size if ranks is None else ranks
        assert 1 <= world <= self.size, f"{world} ranks of a pool of {self.size}"
        self._start()
        self._calls += 1
        store = str(Path(self._folder.name) / f"store-{self._calls}")
        call = pickle.dumps((world, store, timeout_s, self.backend, function, args))
        for rank in self._ranks[:world]:
            rank.pipe.send_bytes(call)
        return self._collect(world, time.monotonic() + timeout_s)

    def close(self) -> None:
        """Stop every process."""
        self._stop()
        self._folder.cleanup()

    def _start(self) -> None:
        if self._ranks and all(rank.process.poll() is None for rank in self._ranks):
            return
        self._stop()
        if self.backend == "giant":
            from giantdsl.backends.giant import build

            # Not within the time that a call has.
            build()
        self._ranks = [_Rank.start(i, self._threads) for i in range(self.size)]
        deadline = time.monotonic() + START_S
        for rank in self._ranks:
            if not rank.pipe.poll(max(0.0, deadline - time.monotonic())):
                self._stop()
                raise RuntimeFault(f"a rank did not start within {START_S:.0f} s")
            rank.pipe.recv_bytes()

    def _stop(self) -> None:
        for rank in self._ranks:
            rank.stop()
        self._ranks = []

    def _collect(self, world: int, deadline: float) -> list[Any]:
        results: dict[int, Any] = {}
        missing = {self._ranks[i].pipe: i for i in range(world)}
        while missing:
            ready = wait(list(missing), max(0.0, deadline - time.monotonic()))
            if not ready:
                late = ", ".join(str(i) for i in missing.values())
                self._stop()
                raise RuntimeFault(f"rank {late} did not answer in time")
            for pipe in ready:
                assert isinstance(pipe, Connection)
                rank = missing.pop(pipe)
                results[rank] = self._answer(rank, pipe)
        return [results[i] for i in range(world)]

    def _answer(self, rank: int, pipe: Connection) -> Any:
        try:
            good, value = pickle.loads(pipe.recv_bytes())
        except (EOFError, ConnectionError) as error:
            code = self._ranks[rank].process.wait()
            self._stop()
            raise RuntimeFault(f"rank {rank} died with exit code {code}") from error
        if good:
            return value
        self._stop()
        raise RuntimeFault(f"rank {rank} failed: {value}")


class _Rank:
    def __init__(self, process: subprocess.Popen[bytes], pipe: Connection) -> None:
        self.process, self.pipe = process, pipe

    @classmethod
    def start(cls, rank: int, threads: int) -> _Rank:
        ours, theirs = socket.socketpair()
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
        command = [sys.executable, "-m", "giantdsl.testing.ranks", str(theirs.fileno()), str(rank)]
        process = subprocess.Popen(
            [*command, str(os.getpid())],
            pass_fds=[theirs.fileno()],
            env=environment | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            start_new_session=True,
        )
        theirs.close()
        return cls(process, Connection(ours.detach()))

    def stop(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.pipe.close()


# ---- inside a rank -------------------------------------------------------------------------


def _serve(handle: int, rank: int, parent: int) -> None:
    _die_with(parent)
    pipe = Connection(handle)
    import torch
    import torch.distributed as dist

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    pipe.send_bytes(b"ready")
    while True:
        try:
            request = pipe.recv_bytes()
        except EOFError:
            return
        pipe.send_bytes(pickle.dumps(_perform(rank, request)))
        if dist.is_initialized():
            dist.destroy_process_group()


def _perform(rank: int, request: bytes) -> tuple[bool, Any]:
    import torch.distributed as dist

    try:
        world, store, timeout_s, backend, function, args = pickle.loads(request)
        if backend == "giant":
            import giantdsl.backends.giant  # noqa: F401  # registers it
        limit = timedelta(seconds=timeout_s)
        dist.init_process_group(
            backend, init_method=f"file://{store}", rank=rank, world_size=world, timeout=limit
        )
        result = function(rank, world, *args)
        # A rank that is done must not hang up on others that are still connecting their groups.
        dist.barrier()
        return True, result
    except GiantError as error:
        return False, f"{error}\n{traceback.format_exc()}"
    except Exception:
        return False, traceback.format_exc()


def _die_with(parent: int) -> None:
    """No rank outlives the process that started it, however that ends."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def main(arguments: Sequence[str]) -> None:
    handle, rank, parent = (int(word) for word in arguments)
    _serve(handle, rank, parent)


if __name__ == "__main__":
    main(sys.argv[1:])
