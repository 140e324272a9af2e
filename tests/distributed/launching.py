"""Start a toy job as a person would, and see what is left of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
MARK = "GIANTDSL_TEST_MARK"
JOBS = "tests.distributed.launch_jobs"
LIMIT_S = 60.0


@dataclass(frozen=True, slots=True)
class Ended:
    """How the started programs ended: exit codes and output, in the order of their start;
    `seconds` since the job's ranks were all at work."""

    codes: list[int]
    outputs: list[str]
    seconds: float

    @property
    def code(self) -> int:
        (code,) = self.codes
        return code

    @property
    def errors(self) -> list[str]:
        """All messages, on whatever terminal."""
        lines = "".join(self.outputs).splitlines()
        return [line for line in lines if line.startswith("error: ")]


class Started:
    """Programs under one mark, which every process that comes of them inherits."""

    def __init__(
        self, commands: list[list[str]], folder: Path, environs: list[dict[str, str]]
    ) -> None:
        self.folder = folder
        self.mark = uuid.uuid4().hex
        common = {**os.environ, MARK: self.mark, "OMP_NUM_THREADS": "1"}
        self.processes = [
            subprocess.Popen(
                [sys.executable, "-m", *command],
                cwd=ROOT,
                env={**common, **environ},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for command, environ in zip(commands, environs, strict=True)
        ]

    def wait_for(self, *names: str) -> None:
        """Until the job has made these files. A program that ended will make none."""
        until = time.monotonic() + LIMIT_S
        while not all((self.folder / name).exists() for name in names):
            assert time.monotonic() < until, f"{names} did not appear"
            time.sleep(0.02)

    def end(self, since: float | None = None) -> Ended:
        """Wait, and check that no process is left. `since` is in seconds of `time.time()`."""
        outputs = [process.communicate(timeout=LIMIT_S)[0] for process in self.processes]
        ended_at = time.time()
        marks = [path.stat().st_mtime for path in self.folder.glob("started-*")]
        since = since or max(marks, default=ended_at)
        assert_soon(lambda: self.left() == [], f"processes left: {self.left()}")
        codes = [process.returncode for process in self.processes]
        return Ended(codes, outputs, ended_at - since)

    def left(self) -> list[int]:
        """Processes that carry the mark."""
        wanted = f"{MARK}={self.mark}".encode()
        found = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            try:
                if wanted in path.read_bytes():
                    found.append(int(path.parent.name))
            except OSError:
                continue  # It ended, or is not ours.
        return found


def assert_soon(is_met: Callable[[], bool], message: str, timeout_s: float = 1.0) -> None:
    until = time.monotonic() + timeout_s
    while not is_met():
        assert time.monotonic() < until, message
        time.sleep(0.02)


def steps(folder: Path, what: str, rank: int, **more: Any) -> str:
    """The argument of the job `steps`."""
    return json.dumps({"what": what, "rank": rank, "folder": str(folder), **more})


def start_local(folder: Path, job: str, argument: str, ranks: int = 2) -> Started:
    return Started([[JOBS, "local", job, str(ranks), str(folder / "run"), argument]], folder, [{}])


def start_torchrun(folder: Path, job: str, argument: str) -> Started:
    # `--standalone` picks a free port by itself.
    command = ["torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", JOBS]
    return Started([[*command, "join", job, argument]], folder, [{}])


def start_slurm(folder: Path, job: str, argument: str) -> Started:
    """Two tasks of a step, as srun starts them."""
    common = {
        "SLURM_JOB_ID": str(os.getpid()),
        "SLURM_STEP_ID": "0",
        "SLURM_NTASKS": "2",
        "SLURM_STEP_TASKS_PER_NODE": "2",
        "SLURM_JOB_NODELIST": "localhost",
    }
    environs = [{**common, "SLURM_PROCID": str(i), "SLURM_LOCALID": str(i)} for i in range(2)]
    return Started([[JOBS, "join", job, argument]] * 2, folder, environs)


def start_open_mpi(folder: Path, job: str, argument: str) -> Started:
    common = {
        "OMPI_COMM_WORLD_SIZE": "2",
        "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": str(_port()),
    }
    environs = [
        {**common, "OMPI_COMM_WORLD_RANK": str(i), "OMPI_COMM_WORLD_LOCAL_RANK": str(i)}
        for i in range(2)
    ]
    return Started([[JOBS, "join", job, argument]] * 2, folder, environs)


def start_hosts(folder: Path, job: str, argument: str) -> Started:
    """Two launchers of two ranks each, as on two hosts."""
    port = str(_port())
    commands = [
        [JOBS, "host", job, "2", str(folder / f"host-{i}"), argument, "2", str(i), port]
        for i in range(2)
    ]
    return Started(commands, folder, [{}, {}])


def _port() -> int:
    """A port that launchers without one of their own would be told: below those that the system
    hands out, and another for each test process."""
    return 15000 + (os.getpid() * 7 + 1) % 15000


LAUNCHERS = {
    "local": start_local,
    "torchrun": start_torchrun,
    "slurm": start_slurm,
    "open mpi": start_open_mpi,
    "hosts": start_hosts,
}
