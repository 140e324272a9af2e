"""PyTorch's own tests of torch.distributed, from its wheel, over giant or gloo on three ranks.

    python -m tests.backend.torch_suite --backend giant|gloo [--only NAME …] [--list] [--out FILE]

Each test gets three fresh processes, forked from this one, which has imported torch: as separate as
PyTorch's runner makes them, for a tenth of its time. A rank does what PyTorch's runner does in
`TestDistBackend._run`: a new default group over a file, a barrier, the seed, the method. It gives up
its group only once all ranks have passed. Past the deadline, or some seconds after the first rank
has failed, the ranks are killed.

What is changed in PyTorch's module, so that giant is asked what gloo is asked, and why:

- Most tests are open to the backends of some names, decided when the module is imported. It is
  imported as if for gloo; then `BACKEND` gets the true name, which the tests give to
  `init_process_group` and compare with `get_backend()`. This is what adding giant to
  `DistTestCases.backend_feature` and to each `BACKEND != "gloo"` would do.
- What gloo is not asked but MPI is (all_to_all on the CPU) comes from a second import, as if for MPI.
  Both backends run these.
- `skip_if_small_worldsize` asks for eight ranks, for tests that are good with three: it asks nothing
  here. Both backends.
- giant joins the lists of backends whose profiler events are checked; this asks more of it.
- Under `test_accumulate_gradients*`, `BACKEND` stays "gloo": there the name picks CPU or CUDA.
- `torch.distributed.monitored_barrier` refuses every name but gloo before it asks the backend. On
  giant it is replaced by one that does the same without that question.

Nothing is changed in what a test asserts. The results: torch_suite_results.md.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import importlib.util
import json
import multiprocessing
import os
import signal
import sys
import tempfile
import time
import traceback
import unittest
import warnings
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import ModuleType
from typing import Any

WORLD = 3
SECONDS = 60.0
# After a failure the others mostly wait for ever; a moment shows whether they fail too.
GRACE = 3.0
SUITE = "torch.testing._internal.distributed.distributed_test"
# What no backend outside of PyTorch can pass, and why: torch_suite_results.md.
KNOWN = {
    "test_ddp_logging_data_cpu": "AssertionError: String comparison failed: 'custom' != 'giant'"
}
PICKS_DEVICE_BY_NAME = "test_accumulate_gradients"


@dataclass(frozen=True)
class Result:
    status: str  # "passed", "failed", "known" (to fail), "skipped"
    reason: str = ""
    details: str = ""  # tracebacks, for people

    @property
    def line(self) -> str:
        return next((text for text in self.reason.splitlines() if text.strip()), "")


class Suite:
    """PyTorch's test class, imported for one backend. One a process: it lives by global variables."""

    def __init__(self, backend: str) -> None:
        os.environ.update(WORLD_SIZE=str(WORLD), MASTER_ADDR="127.0.0.1", INIT_METHOD="file:///-")
        os.environ.pop("TORCH_DISTRIBUTED_DEBUG", None)
        from torch.testing._internal import common_distributed

        common_distributed.skip_if_small_worldsize = lambda function: function
        self.backend = backend
        self._modules = [_import("gloo"), _import("mpi")]
        self._classes = [_test_class(module) for module in self._modules]
        os.environ["BACKEND"] = backend
        if backend != "gloo":
            _open_to(backend, self._modules)

    @property
    def names(self) -> list[str]:
        return sorted(name for name in dir(self._classes[0]) if name.startswith("test_"))

    def find(self, name: str) -> tuple[ModuleType, type]:
        """Where the test is open to gloo, else where it is to MPI, else anywhere."""
        both = list(zip(self._modules, self._classes, strict=True))
        return next((pair for pair in both if not why_closed(getattr(pair[1], name))), both[0])

    def run(self, name: str, seconds: float) -> Result:
        module, kind = self.find(name)
        closed = why_closed(getattr(kind, name))
        if closed:
            return Result("skipped", closed)
        module.BACKEND = "gloo" if name.startswith(PICKS_DEVICE_BY_NAME) else self.backend
        with tempfile.TemporaryDirectory(prefix="torch-suite-") as folder:
            with contextlib.closing(
                _Ranks(module, kind, name, self.backend, Path(folder))
            ) as ranks:
                return ranks.outcome(seconds)


def why_closed(method: Any) -> str:
    if not getattr(method, "__unittest_skip__", False):
        return ""
    return getattr(method, "__unittest_skip_why__", "") or "for no reason given"


def _import(gates: str) -> ModuleType:
    """PyTorch's module, under a name of its own, with the tests that are open to `gates`."""
    os.environ["BACKEND"] = gates
    spec = importlib.util.find_spec(SUITE)
    assert spec is not None and spec.origin is not None, "part of torch's wheel"
    own = importlib.util.spec_from_file_location(f"torch_suite_open_to_{gates}", spec.origin)
    assert own is not None and own.loader is not None, "a path with .py has a loader"
    module = importlib.util.module_from_spec(own)
    sys.modules[own.name] = module  # objects of its classes are pickled
    own.loader.exec_module(module)
    return module


def _test_class(module: ModuleType) -> type:
    return type(
        "TestDistBackendOnRanks", (module.TestDistBackend, module.DistributedTest._DistTestBase), {}
    )


def _open_to(backend: str, modules: list[ModuleType]) -> None:
    import torch.distributed as dist

    for module in modules:
        module.PROFILING_SUPPORTED_BACKENDS.append(backend)
        module.CUDA_PROFILING_SUPPORTED_BACKENDS.append(backend)
        module.SEND_RECV_PROFILING_SUPPORTED_BACKENDS.append(backend)
    dist.monitored_barrier = _monitored_barrier


def _monitored_barrier(
    group: Any = None, timeout: Any = None, wait_all_ranks: bool = False
) -> None:
    import torch.distributed as dist

    if group == dist.GroupMember.NON_GROUP_MEMBER:
        warnings.warn("monitored_barrier by a rank that is not in the group", stacklevel=2)
        return
    if not isinstance(timeout, timedelta):
        timeout = timedelta(seconds=1800 if timeout is None else timeout)
    (group or dist.group.WORLD).monitored_barrier(timeout, wait_all_ranks=wait_all_ranks)


class _Ranks:
    """The processes of one test."""

    def __init__(
        self, module: ModuleType, kind: type, name: str, backend: str, folder: Path
    ) -> None:
        for part in ("barrier", "test_dir", "init_dir"):
            (folder / part).mkdir()
        self._folder = folder
        context = multiprocessing.get_context("fork")
        self._pipes: list[Connection] = []
        self._processes = []
        for rank in range(WORLD):
            ours, theirs = context.Pipe()
            arguments = (module, kind, name, backend, rank, folder, theirs)
            process = context.Process(target=_serve, args=arguments)
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)

    def outcome(self, seconds: float) -> Result:
        deadline = time.monotonic() + seconds
        results = self._collect(deadline)
        if all(result.status == "passed" for result in results):
            for pipe in self._pipes:
                pipe.send("end")
            results = self._collect(deadline)
        for status in ("failed", "skipped"):
            found = next((result for result in results if result.status == status), None)
            if found:
                return Result(status, found.reason, self._details(results))
        for process in self._processes:
            process.join(max(0.0, deadline - time.monotonic()))
        bad = [process.exitcode for process in self._processes if process.exitcode != 0]
        return Result("failed", f"a rank ended with status {bad[0]}") if bad else Result("passed")

    def _collect(self, deadline: float) -> list[Result]:
        """The ranks' results in the order in which they came."""
        results: list[Result] = []
        waiting = dict(zip(self._pipes, range(WORLD), strict=True))
        while waiting:
            ready = wait(list(waiting), max(0.0, deadline - time.monotonic()))
            if not ready:
                break
            for pipe in ready:
                assert isinstance(pipe, Connection)
                result = _received(pipe, waiting.pop(pipe))
                if result.status == "failed":
                    deadline = min(deadline, time.monotonic() + GRACE)
                results.append(result)
        for rank in waiting.values():
            os.kill(self._pid(rank), signal.SIGUSR1)
            results.append(Result("failed", f"rank {rank} did not come to an end"))
        time.sleep(0.5 if waiting else 0)
        return results

    def _pid(self, rank: int) -> int:
        pid = self._processes[rank].pid
        assert pid is not None, "it has been started"
        return pid

    def _details(self, results: list[Result]) -> str:
        texts = [result.details for result in results if result.status == "failed"]
        for rank in range(WORLD):
            log = self._folder / f"rank{rank}.log"
            if log.is_file() and (text := log.read_text("utf-8", "replace")[-4000:].strip()):
                texts.append(f"output of rank {rank}:\n{text}")
        return "\n".join(texts)

    def close(self) -> None:
        for process in self._processes:
            # It leads a process group of its own, with what it has started.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._pid(self._processes.index(process)), signal.SIGKILL)
            process.kill()
            process.join()
        for pipe in self._pipes:
            pipe.close()


def _received(pipe: Connection, rank: int) -> Result:
    try:
        return Result(*pipe.recv())
    except (EOFError, ConnectionError):
        return Result("failed", f"rank {rank} died")


def _serve(
    module: ModuleType,
    kind: type,
    name: str,
    backend: str,
    rank: int,
    folder: Path,
    pipe: Connection,
) -> None:
    """What one rank does."""
    os.setpgid(0, 0)
    log = (folder / f"rank{rank}.log").open("w")
    os.dup2(log.fileno(), 1)
    os.dup2(log.fileno(), 2)
    faulthandler.register(signal.SIGUSR1, file=log, all_threads=True)
    method = f"file://{folder}/init_dir/shared_init_file"
    os.environ.update(TEMP_DIR=str(folder), INIT_METHOD=method, RANK=str(rank))
    module.INIT_METHOD = method
    result = _guarded(lambda: _run_test(module, kind, name, backend, rank, folder))
    pipe.send(result)
    if result[0] == "passed":
        pipe.recv()
        pipe.send(_guarded(_leave))
    sys.stdout.flush()
    sys.stderr.flush()


def _run_test(
    module: ModuleType, kind: type, name: str, backend: str, rank: int, folder: Path
) -> None:
    import torch
    import torch.distributed as dist
    from torch.testing._internal import common_utils

    torch.set_num_threads(1)
    test = kind(name)
    test.rank = rank
    test.file_name = str(folder / "store")
    seconds = module.CUSTOM_PG_TIMEOUT.get(name, module.default_pg_timeout)
    dist.init_process_group(
        backend, init_method=test.init_method, world_size=WORLD, rank=rank,
        timeout=timedelta(seconds=seconds),
    )  # fmt: skip
    test._barrier()
    common_utils.set_rng_seed()
    getattr(test, name)()


def _leave() -> None:
    import torch.distributed as dist

    if dist.is_initialized():
        dist.destroy_process_group()


def _guarded(action: Any) -> tuple[str, str, str]:
    from torch.testing._internal.common_distributed import TEST_SKIPS

    try:
        action()
    except unittest.SkipTest as error:
        return "skipped", str(error), ""
    except SystemExit as error:
        meant = next((s.message for s in TEST_SKIPS.values() if s.exit_code == error.code), None)
        if meant:
            return "skipped", meant, ""
        return "failed", f"it left with status {error.code}", traceback.format_exc()
    except BaseException as error:
        return "failed", f"{type(error).__name__}: {error}", traceback.format_exc()
    return "passed", "", ""


def run_all(suite: Suite, names: list[str], seconds: float) -> dict[str, Result]:
    results = {}
    for name in names:
        begin = time.monotonic()
        result = suite.run(name, seconds)
        if result.status == "failed" and result.line == KNOWN.get(name):
            result = Result("known", result.reason)
        results[name] = result
        print(f"{results[name].status:8}{time.monotonic() - begin:6.1f} s  {name}", flush=True)
        if results[name].status == "failed":
            print(f"  {results[name].line}\n{results[name].details}", file=sys.stderr, flush=True)
    return results


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--backend", choices=("giant", "gloo"), default="giant")
    parser.add_argument("--only", nargs="+", metavar="NAME")
    parser.add_argument("--list", action="store_true", help="print the names and leave")
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="a JSON of {name: [status, reason]}"
    )
    parser.add_argument("--seconds", type=float, default=SECONDS, help="the deadline of a test")
    arguments = parser.parse_args()
    if arguments.backend == "giant":
        from giantdsl.backends.giant import build

        build()
    suite = Suite(arguments.backend)
    if arguments.list:
        print("\n".join(suite.names))
        return 0
    unknown = set(arguments.only or ()) - set(suite.names)
    if unknown:
        parser.error(f"no such test: {', '.join(sorted(unknown))}")
    results = run_all(suite, arguments.only or suite.names, arguments.seconds)
    if arguments.out:
        rows = {name: [result.status, result.line] for name, result in results.items()}
        arguments.out.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    statuses = [result.status for result in results.values()]
    print(", ".join(f"{statuses.count(s)} {s}" for s in ("passed", "failed", "known", "skipped")))
    return 1 if "failed" in statuses else 0


if __name__ == "__main__":
    sys.exit(main())
