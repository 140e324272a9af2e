"""A rank: `python -m giantdsl.bench.rank HANDLE`. Answers what it is asked until it is hung up on."""

from __future__ import annotations

import importlib
import pickle
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from datetime import timedelta
from multiprocessing.connection import Connection
from typing import Any

import torch
import torch.distributed as dist

from giantdsl.bench.operations import Place, Prepared, prepare
from giantdsl.bench.protocol import At, CopyRate, Failed, Measure, Setup, Times

_REGISTERED_BY = {"giant": "giantdsl.backends.giant"}
_MOST_CALLS = 200
_INTERFACE = "eth0"


class BenchRank:
    """One rank with a group for every backend. `say` tells what it is at work on.

    Barriers and agreements go over a group of their own, so that no measured backend is disturbed.
    """

    def __init__(self, setup: Setup, say: Callable[[At], None]) -> None:
        self._say = say
        limit = timedelta(seconds=setup.timeout_s)
        dist.init_process_group(
            "gloo",
            init_method=f"file://{setup.store}",
            rank=setup.rank,
            world_size=setup.size,
            timeout=limit,
        )
        self._places: dict[str, Place] = {}
        for backend in setup.backends:
            say(At(backend))
            if backend in _REGISTERED_BY:
                importlib.import_module(_REGISTERED_BY[backend])
            group = dist.new_group(backend=backend, timeout=limit)
            self._places[backend] = Place(setup.rank, setup.size, group)

    def answer(self, request: Measure | CopyRate) -> dict[str, Times] | float:
        if isinstance(request, CopyRate):
            return self._copy_rate(request)
        return self._measure(request)

    def _measure(self, request: Measure) -> dict[str, Times]:
        """Of each backend: a checked call, a warm one, one that says how many make a round."""
        prepared, times = {}, {}
        for backend in request.backends:
            self._say(At(backend))
            prepared[backend] = prepare(request.cell, self._places[backend])
            times[backend] = self._first_calls(prepared[backend], request.budget_s)
        for i in range(request.rounds):
            order = request.backends if i % 2 == 0 else request.backends[::-1]
            for backend in order:
                self._say(At(backend))
                self._round(prepared[backend], times[backend])
        for each in times.values():
            each.wire_bytes /= each.calls * request.rounds
        return times

    def _first_calls(self, prepared: Prepared, budget_s: float) -> Times:
        prepared.call()
        is_correct = prepared.check()
        prepared.call()
        dist.barrier()
        begin = time.perf_counter()
        prepared.call()
        once_s = _largest(time.perf_counter() - begin)
        return Times(is_correct, calls=min(max(int(budget_s / once_s), 1), _MOST_CALLS))

    def _round(self, prepared: Prepared, times: Times) -> None:
        dist.barrier()
        before = _interface_bytes()
        begin = time.perf_counter()
        for _ in range(times.calls):
            prepared.call()
        times.seconds.append((time.perf_counter() - begin) / times.calls)
        dist.barrier()
        after = _interface_bytes()
        times.wire_bytes += max(b - a for a, b in zip(before, after, strict=True))

    def _copy_rate(self, request: CopyRate) -> float:
        """Bytes/s, while the other ranks that take part do the same; 0 for one that does not."""
        source, target = torch.ones(2, request.num_bytes, dtype=torch.uint8)
        target.copy_(source)
        dist.barrier()
        if not request.takes_part:
            return 0.0
        calls, spent_s, begin = 0, 0.0, time.perf_counter()
        while spent_s < request.seconds:
            target.copy_(source)
            calls += 1
            spent_s = time.perf_counter() - begin
        return calls * request.num_bytes / spent_s


def _largest(seconds: float) -> float:
    """Of all ranks."""
    value = torch.tensor(seconds, dtype=torch.float64)
    dist.all_reduce(value, dist.ReduceOp.MAX)
    return float(value)


def _interface_bytes() -> tuple[int, int]:
    """Received and sent by this host's interface; 0 where it has none."""
    with open("/proc/net/dev") as lines:
        for line in lines:
            name, _, rest = line.partition(":")
            if name.strip() == _INTERFACE:
                fields = rest.split()
                return int(fields[0]), int(fields[8])
    return 0, 0


def main(arguments: Sequence[str]) -> None:
    # torch renames its tensor collectives.
    warnings.filterwarnings("ignore", category=FutureWarning)
    torch.set_num_threads(1)
    pipe = Connection(int(arguments[0]))
    at = [""]

    def say(where: At) -> None:
        at[0] = where.backend
        send(where)

    def send(message: Any) -> None:
        pipe.send_bytes(pickle.dumps(message))

    try:
        rank = BenchRank(pickle.loads(pipe.recv_bytes()), say)
        send(None)
        while True:
            send(rank.answer(pickle.loads(pipe.recv_bytes())))
    except EOFError:
        return
    except Exception as error:
        traceback.print_exc()
        send(Failed(at[0], f"{type(error).__name__}: {error}"))
        # Leaving would break the others' connections: theirs is to notice by themselves.
        pipe.poll(None)


if __name__ == "__main__":
    main(sys.argv[1:])
