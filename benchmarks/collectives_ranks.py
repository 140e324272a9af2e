"""Rank processes on the emulated cluster, and what its links carry."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from cluster import Cluster
from cluster.running import Process, kill_all

from giantdsl.bench.limits import LinkRates

_LINKCHECK = Path(__file__).resolve().parent / "cluster" / "linkcheck.py"
_ROUND_ROBIN = ("chrt", "-r", "5")
_CHECK_S = "0.6"
_CHECKS = 4


def priority_words(is_realtime: bool) -> tuple[str, ...]:
    """What a command starts with. Under SCHED_RR other work on the machine disturbs ranks little:
    without it a 1 KiB all_reduce of gloo read 1.5-2.5 ms instead of 0.3-0.4."""
    return _ROUND_ROBIN if is_realtime else ()


class ClusterSpawner:
    """Ranks on the cluster's hosts, `local_size` on each."""

    def __init__(self, cluster: Cluster, *, is_realtime: bool) -> None:
        self._cluster, self._prefix = cluster, priority_words(is_realtime)
        self._processes: dict[str, Process] = {}

    def start(self, rank: int, handle: int) -> None:
        host, local = divmod(rank, self._cluster.local_size)
        variables = {
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        }
        self._processes[f"r{rank}"] = self._cluster.popen(
            host,
            [*self._prefix, sys.executable, "-m", "giantdsl.bench.rank", str(handle)],
            variables,
            local,
            pass_fds=[handle],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def stop(self) -> None:
        kill_all(self._cluster, self._processes)
        for process in self._processes.values():
            process.wait()
        self._processes = {}


def link_rates(cluster: Cluster, *, is_realtime: bool) -> LinkRates:
    """Between hosts 0 and 1, the best of several checks: what disturbs one makes it slower."""
    found = [_check(cluster, is_realtime) for _ in range(_CHECKS)]
    both_ways = max(each["both_ways_MBps_per_way"] for each in found) * 1e6
    one_way = max(each["one_way_MBps"] for each in found) * 1e6
    # What a link carries while the other way is as busy, it carries alone too.
    return LinkRates(max(one_way, both_ways), both_ways)


def _check(cluster: Cluster, is_realtime: bool) -> dict[str, float]:
    command = [*priority_words(is_realtime), sys.executable, str(_LINKCHECK)]
    # A pipe, not a sink: its last line must not be lost.
    checks = [
        cluster.popen(host, command, {"SECONDS": _CHECK_S}, stdout=subprocess.PIPE)
        for host in range(2)
    ]
    printed = [each.communicate(timeout=60)[0] for each in checks]
    if any(each.returncode for each in checks):
        raise RuntimeError("the link check failed")
    rates: dict[str, float] = json.loads(printed[0])
    return rates
