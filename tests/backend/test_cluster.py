"""What befalls a job on an emulated cluster of two hosts of two: it ends on all ranks, in time, with
the right message, and nothing is left behind.

gloo shows that the tests themselves are right; what is asked of `giant` is more: it says who is
missing, and finds calls that do not match.
"""

from __future__ import annotations

import importlib.util
import json
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks.cluster import Cluster, why_not
from benchmarks.cluster.running import Process
from tests.backend import cluster_job

JOB = Path(cluster_job.__file__)
HAS_GIANT = importlib.util.find_spec("giantdsl.backends.giant") is not None
REFUSAL = why_not()
START_S = 120.0
BUILD_S = 900.0
SOON_S = 6.0
"""For what is noticed at once; the machine may be busy."""
LONG_S = 30.0
SHORT_S = 4.0
VICTIM = 3
LISTENING_OR_CONNECTED = ("0A", "01")

pytestmark = pytest.mark.skipif(REFUSAL is not None, reason=str(REFUSAL))
giant = pytest.param(
    "giant", marks=pytest.mark.skipif(not HAS_GIANT, reason="the backend giant is not there")
)
both = pytest.mark.parametrize("backend", ["gloo", giant])
only_giant = pytest.mark.parametrize("backend", [giant])


class Job:
    """The job's ranks on a cluster, and the lines they have printed."""

    def __init__(self, cluster: Cluster, backend: str, scenario: str, timeout_s: float) -> None:
        self.cluster = cluster
        self.events: dict[str, dict[int, dict]] = {"ready": {}, "end": {}}
        self.output: list[str] = []
        command = [sys.executable, "-m", "tests.backend.cluster_job", backend, scenario]
        self._ranks: dict[str, Process] = cluster.start(
            [*command, str(timeout_s)], "rank", {"OMP_NUM_THREADS": "1"}, self._hear
        )
        self._wait("ready", cluster.world_size, START_S)

    def _hear(self, label: str, line: str) -> None:
        self.output.append(f"[{label}] {line}")
        if line.startswith('{"event"'):
            said = json.loads(line)
            self.events[said["event"]][said["rank"]] = said

    def _wait(self, event: str, count: int, limit_s: float) -> None:
        end = time.monotonic() + limit_s
        while len(self.events[event]) < count:
            if time.monotonic() > end:
                missing = set(range(self.cluster.world_size)) - set(self.events[event])
                pytest.fail(f"no {event!r} of {missing} in {limit_s} s:\n{''.join(self.output)}")
            time.sleep(0.02)

    def ends(self, count: int, within_s: float) -> dict[int, dict]:
        """What `count` ranks ended with, by rank."""
        self._wait("end", count, within_s + cluster_job.SETTLE_S)
        return self.events["end"]

    def wait_for_exit(self) -> list[int]:
        codes = [process.wait(timeout=20) for process in self._ranks.values()]
        assert not [line for line in self.output if "Traceback" in line], "".join(self.output)
        return codes


StartJob = Callable[..., Job]


@pytest.fixture(scope="module", autouse=True)
def built() -> None:
    """The backend is built once, before anything is timed."""
    if not HAS_GIANT or REFUSAL is not None:
        return
    program = (
        "import sys, torch.distributed as dist, giantdsl.backends.giant\n"
        "dist.init_process_group('giant', init_method='file://' + sys.argv[1],"
        " rank=0, world_size=1)\n"
        "dist.barrier(); dist.destroy_process_group()"
    )
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-c", program, f"{folder}/store"],
            capture_output=True, text=True, timeout=BUILD_S, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.fixture
def start() -> Iterator[StartJob]:
    with Cluster(hosts=2, local_size=2) as cluster:
        yield lambda *arguments: Job(cluster, *arguments)


def names(message: str, *ranks: int) -> bool:
    """Does it name one of these ranks? "rank 3", "ranks 2, 3 and 5"."""
    lists = re.findall(r"\branks? (\d+(?:(?:, | and )\d+)*)", message)
    found = {int(number) for each in lists for number in re.findall(r"\d+", each)}
    return not found.isdisjoint(ranks)


def assert_all_failed(ends: dict[int, dict], ranks: set[int]) -> None:
    assert set(ends) == ranks
    for rank, end in ends.items():
        assert end["kind"] is not None, f"rank {rank} met with nothing: {end}"
        assert "AssertionError" not in end["kind"], end["message"]


def assert_nothing_held(ends: dict[int, dict]) -> None:
    """By the processes that went on after the group: no thread, descriptor or shared memory."""
    for rank, end in ends.items():
        for kind, before in end["before"].items():
            assert end["after"][kind] <= before, f"rank {rank} still holds {kind}: {end}"


def assert_nothing_left(cluster: Cluster) -> None:
    """On the hosts: no process, no socket of one, no file in shared memory."""
    for host in cluster.hosts:
        assert not list(host.pids()), f"processes on {host.name}"
        proc = Path(f"/proc/{host.namespace.pid}")
        assert not list((proc / "root/dev/shm").iterdir()), f"shared memory on {host.name}"
        assert len((proc / "net/unix").read_text().splitlines()) == 1, f"sockets on {host.name}"
        for table in ("net/tcp", "net/tcp6"):
            lines = (proc / table).read_text().splitlines()[1:]
            open_ = [line for line in lines if line.split()[3] in LISTENING_OR_CONNECTED]
            assert not open_, f"sockets on {host.name}: {open_}"


@both
def test_a_killed_rank_ends_all_at_once(backend: str, start: StartJob) -> None:
    job = start(backend, "go on", LONG_S)
    assert job.cluster.signal_rank(VICTIM, signal.SIGKILL)
    ends = job.ends(3, SOON_S)
    assert_all_failed(ends, {0, 1, 2})
    assert all(end["seconds"] < SOON_S for end in ends.values()), ends
    if backend == "giant":
        for end in ends.values():
            assert end["kind"] == "DistBackendError", end
            assert names(end["message"], VICTIM) and "all_reduce" in end["message"], end
    assert_nothing_held(ends)
    codes = job.wait_for_exit()
    assert codes[:VICTIM] == [0, 0, 0] and codes[VICTIM] != 0
    assert_nothing_left(job.cluster)


@only_giant
def test_a_killed_first_rank_ends_all_at_once(backend: str, start: StartJob) -> None:
    """The store of the job dies with it."""
    job = start(backend, "go on", LONG_S)
    assert job.cluster.signal_rank(0, signal.SIGKILL)
    ends = job.ends(3, SOON_S)
    assert_all_failed(ends, {1, 2, 3})
    assert all(end["seconds"] < SOON_S for end in ends.values()), ends
    assert all(names(end["message"], 0) for end in ends.values()), ends
    assert_nothing_held(ends)
    job.wait_for_exit()
    assert_nothing_left(job.cluster)


@both
def test_a_stopped_rank_ends_all_by_the_timeout(backend: str, start: StartJob) -> None:
    job = start(backend, "go on", SHORT_S)
    assert job.cluster.signal_rank(VICTIM, signal.SIGSTOP)
    ends = job.ends(3, SHORT_S + SOON_S)
    assert_all_failed(ends, {0, 1, 2})
    assert max(end["seconds"] for end in ends.values()) > SHORT_S - 1, ends
    if backend == "giant":
        for end in ends.values():
            assert names(end["message"], VICTIM) and "in time" in end["message"], end
    assert_nothing_held(ends)
    job.cluster.signal_rank(VICTIM, signal.SIGKILL)
    job.wait_for_exit()
    assert_nothing_left(job.cluster)


@both
def test_a_dropped_link_ends_both_sides_by_the_timeout(backend: str, start: StartJob) -> None:
    job = start(backend, "go on", SHORT_S)
    job.cluster.set_blackhole(1, is_on=True)
    ends = job.ends(4, 2 * SHORT_S + SOON_S)
    assert_all_failed(ends, {0, 1, 2, 3})
    if backend == "giant":
        for rank, end in ends.items():
            others = (2, 3) if rank < 2 else (0, 1)
            assert names(end["message"], *others) and "in time" in end["message"], end
    assert_nothing_held(ends)
    job.wait_for_exit()
    assert not [pid for host in job.cluster.hosts for pid in host.pids()]


@only_giant
@pytest.mark.parametrize("what", ["operation", "size", "dtype"])
def test_calls_that_do_not_match_are_an_error_on_all_ranks(
    what: str, backend: str, start: StartJob
) -> None:
    job = start(backend, what, LONG_S)
    ends = job.ends(4, SOON_S)
    assert_all_failed(ends, {0, 1, 2, 3})
    for end in ends.values():
        assert "do not match" in end["message"] and end["seconds"] < SOON_S, end
        assert names(end["message"], VICTIM) and "all_reduce" in end["message"], end
    assert_nothing_held(ends)
    assert job.wait_for_exit() == [0, 0, 0, 0]
    assert_nothing_left(job.cluster)


@both
def test_a_slow_rank_is_waited_for(backend: str, start: StartJob) -> None:
    job = start(backend, "slow", LONG_S)
    ends = job.ends(4, LONG_S)
    assert set(ends) == {0, 1, 2, 3}
    least = cluster_job.SLEEP_S * cluster_job.CALLS_OF_THE_SLOW
    for end in ends.values():
        assert end["kind"] is None and end["seconds"] > 0.9 * least, end
    assert_nothing_held(ends)
    assert job.wait_for_exit() == [0, 0, 0, 0]
    assert_nothing_left(job.cluster)
