"""Ranks on this machine, which may be told that they are on several hosts."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys

from giantdsl.bench.cells import Shape

_PR_SET_PDEATHSIG = 1


class LocalSpawner:
    """Ranks as plain processes. Hosts are pretended: GIANT_HOST_ID names one, loopback joins them."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self, rank: int, handle: int) -> None:
        variables = {
            "OMP_NUM_THREADS": "1",
            "GLOO_SOCKET_IFNAME": "lo",
            "GIANT_SOCKET_IFNAME": "lo",
            "GIANT_HOST_ID": f"bench-{os.getpid()}-{rank // self._shape.local}",
            "RANK": str(rank),
            "WORLD_SIZE": str(self._shape.ranks),
            "LOCAL_RANK": str(rank % self._shape.local),
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        }
        process = subprocess.Popen(
            [sys.executable, "-m", "giantdsl.bench.rank", str(handle)],
            pass_fds=[handle],
            env={**os.environ, **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=_die_with_parent if sys.platform == "linux" else None,
        )
        self._processes.append(process)

    def stop(self) -> None:
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self._processes = []


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
