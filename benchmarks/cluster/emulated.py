"""The cluster: a switch, hosts around it, and ways to start and disturb processes on them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from .host import SUBNET, Fabric, Host
from .namespace import Namespace
from .running import Process, Result, Sink, print_line, stand_by, start_pumps
from .system import die_with_parent, send_signal
from .units import parse_bandwidth, parse_time

MASTER_PORT = 29500
_RANK_NAMES = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK")


class Cluster:
    """`hosts` emulated hosts of `local_size` ranks each. Use it in a with statement.

    bandwidth: of each host's port, each way, such as '1gbit'; None leaves it unshaped.
    latency: one way between two hosts, such as '0.2ms'; None adds nothing to the ~15 us of veth.
    """

    def __init__(
        self,
        hosts: int,
        local_size: int = 1,
        bandwidth: str | float | None = None,
        latency: str | float | None = None,
        *,
        queue_bytes: int = 1 << 20,
        congestion: str = "cubic",
    ) -> None:
        self.num_hosts, self.local_size = hosts, local_size
        self.bandwidth = parse_bandwidth(bandwidth)
        self._latency_s = parse_time(latency)
        self._queue_bytes, self._congestion = queue_bytes, congestion
        self._folder: Path | None = None
        self._switch: Namespace | None = None
        self.hosts: list[Host] = []
        self._running: list[Process] = []

    @property
    def world_size(self) -> int:
        return self.num_hosts * self.local_size

    def __enter__(self) -> Self:
        try:
            self._build()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()

    def _build(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="emucluster-"))
        names = "".join(f"{SUBNET}.{i + 1} h{i}\n" for i in range(self.num_hosts))
        (self._folder / "hosts").write_text("127.0.0.1 localhost\n" + names)
        switch = self._switch = Namespace(["--net"])
        has_netem = _probe_netem(switch)
        switch.sh("ip", "link", "add", "br0", "type", "bridge")
        switch.sh("ip", "link", "set", "br0", "up")
        fabric = Fabric(
            self._folder, switch, self._latency_s, self._queue_bytes, self._congestion, has_netem
        )
        for index in range(self.num_hosts):
            host = Host(fabric, index)
            self.hosts.append(host)
            host.plug()
            host.shape(self.bandwidth)
        self._write_rsh_agent(self._folder / "rsh")

    def close(self) -> None:
        """Kill everything in the cluster; the kernel drops its namespaces. May be called again."""
        for process in self._running:
            if process.poll() is None:
                process.kill()
        for host in self.hosts:
            host.close()
        for process in self._running:
            process.wait()
        if self._switch is not None:
            self._switch.kill()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        self.hosts, self._switch, self._folder, self._running = [], None, None, []

    def _write_rsh_agent(self, path: Path) -> None:
        """A stand-in for ssh that mpirun can call: AGENT [options] HOST COMMAND..."""
        cases = "\n".join(f"  {h.name}|{h.address}) pid={h.namespace.pid};;" for h in self.hosts)
        flags = " ".join(self.hosts[0].namespace.enter_flags)
        path.write_text(
            "#!/bin/sh\n"
            'while :; do case "$1" in -[lp]) shift 2;; -*) shift;; *) break;; esac; done\n'
            f'case "$1" in\n{cases}\n  *) echo "rsh: no host $1" >&2; exit 255;;\nesac\n'
            f'shift; exec nsenter -t $pid {flags} -- sh -c "$*"\n'
        )
        path.chmod(0o755)

    # ---- processes ------------------------------------------------------------------------

    def environment(self, host: int, local_rank: int | None = None) -> dict[str, str]:
        """What a process on that host gets, beside the caller's environment."""
        values: dict[str, Any] = {
            "HOST_RANK": host,
            "HOSTS": self.num_hosts,
            "LOCAL_SIZE": self.local_size,
            "HOST_ADDR": self.hosts[host].address,
            "HOST_ADDRS": ",".join(each.address for each in self.hosts),
            "MASTER_ADDR": self.hosts[0].address,
            "MASTER_PORT": MASTER_PORT,
            "GLOO_SOCKET_IFNAME": "eth0",
            "TP_SOCKET_IFNAME": "eth0",
            "GIANT_SOCKET_IFNAME": "eth0",
            "CLUSTER_BANDWIDTH": self.bandwidth or "",
            "CLUSTER_LATENCY": self._latency_s or "",
        }
        if local_rank is not None:
            values |= {
                "RANK": host * self.local_size + local_rank,
                "WORLD_SIZE": self.world_size,
                "LOCAL_RANK": local_rank,
                "LOCAL_WORLD_SIZE": self.local_size,
                "GROUP_RANK": host,
                "GROUP_WORLD_SIZE": self.num_hosts,
            }
        return {name: str(value) for name, value in values.items()}

    def popen(
        self,
        host: int,
        command: Sequence[str],
        env: Mapping[str, str] | None = None,
        local_rank: int | None = None,
        **options: Any,
    ) -> Process:
        """Start a command on a host; `options` are subprocess.Popen's."""
        # nsenter leaves us in /.
        line = self.hosts[host].namespace.enter("env", "-C", os.getcwd(), *command)
        full = {**os.environ, **self.environment(host, local_rank), **(env or {})}
        return self._spawn(line, full, options)

    def popen_launcher(
        self, command: Sequence[str], env: Mapping[str, str] | None = None, **options: Any
    ) -> Process:
        """Start a command, such as mpirun, once: on the network of host 0, as host 'h0', but
        outside its process table, so that it can start processes on every host with
        $CLUSTER_RSH HOST COMMAND."""
        full = {
            **os.environ,
            **self.environment(0),
            "CLUSTER_RSH": f"{self._folder}/rsh",
            "CLUSTER_HOSTS": ",".join(f"{host.name}:{self.local_size}" for host in self.hosts),
            **(env or {}),
        }
        line = self.hosts[0].namespace.enter(*command, flags=["--net", "--uts"])
        return self._spawn(line, full, options)

    def _spawn(
        self, line: Sequence[str], env: Mapping[str, str], options: Mapping[str, Any]
    ) -> Process:
        process = subprocess.Popen(
            line, env=env, preexec_fn=die_with_parent, stdin=subprocess.DEVNULL,
            start_new_session=True, **options,
        )  # fmt: skip
        self._running.append(process)
        return process

    def start(
        self,
        command: Sequence[str],
        per: str = "host",
        env: Mapping[str, str] | None = None,
        sink: Sink | None = print_line,
    ) -> dict[str, Process]:
        """Start a command everywhere. Lines of output go to `sink(label, line)`; None drops them.

        per: 'host', 'rank', 'torchrun' (a torchrun a host), 'launcher' (once in all: mpirun).
        """
        output = subprocess.DEVNULL if sink is None else subprocess.PIPE
        pipes = {"stdout": output, "stderr": subprocess.STDOUT}
        started: dict[str, Process] = {}
        if per == "launcher":
            started["launcher"] = self.popen_launcher(command, env, **pipes)
        elif per == "rank":
            for rank in range(self.world_size):
                host, local = divmod(rank, self.local_size)
                started[f"r{rank}"] = self.popen(host, command, env, local, **pipes)
        elif per in ("host", "torchrun"):
            for host in range(self.num_hosts):
                line = command if per == "host" else [*self._torchrun(host), *command]
                started[f"h{host}"] = self.popen(host, line, env, **pipes)
        else:
            raise ValueError(f"per={per!r}")
        if sink is not None:
            start_pumps(started, sink)
        return started

    def _torchrun(self, host: int) -> list[str]:
        return [
            sys.executable, "-m", "torch.distributed.run",
            "--nnodes", str(self.num_hosts), "--nproc-per-node", str(self.local_size),
            "--node-rank", str(host), "--master-addr", self.hosts[0].address,
            "--master-port", str(MASTER_PORT),
        ]  # fmt: skip

    def run(
        self,
        command: Sequence[str],
        per: str = "host",
        env: Mapping[str, str] | None = None,
        *,
        timeout_s: float | None = None,
        events: Sequence[tuple[float, str]] = (),
        sink: Sink | None = print_line,
        grace_s: float | None = None,
    ) -> Result:
        """Start a command everywhere and stand by it; see `start` and `stand_by`."""
        started = self.start(command, per, env, sink)
        return stand_by(self, started, events, timeout_s, grace_s)

    # ---- faults and changes ---------------------------------------------------------------

    def set_bandwidth(self, bandwidth: str | float | None, host: int | None = None) -> None:
        """Of one host's port, or of all. What a port has queued is lost."""
        bits = parse_bandwidth(bandwidth)
        for each in self.hosts if host is None else [self.hosts[host]]:
            each.shape(bits)
        if host is None:
            self.bandwidth = bits

    def signal_rank(self, rank: int, signum: int = signal.SIGKILL) -> list[int]:
        """Signal the process of that global rank, whatever started it; its pids."""
        wanted = {f"{name}={rank}".encode() for name in _RANK_NAMES}
        found = []
        for host in self.hosts:
            for pid in host.pids():
                try:
                    variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
                except OSError:
                    continue  # it has ended meanwhile
                if wanted.intersection(variables):
                    found.append(pid)
        for pid in found:
            send_signal(pid, signum)
        if signum in (signal.SIGKILL, signal.SIGCONT):
            self._wake_those_who_wait()
        return found

    def _wake_those_who_wait(self) -> None:
        """nsenter stops itself when its child is stopped, and would not see the child's end."""
        for process in self._running:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)

    def kill_host(self, host: int) -> None:
        """Power off: every process there dies at once; nothing says goodbye on the network."""
        self.set_blackhole(host, is_on=True)
        self.hosts[host].namespace.kill()

    def set_link(self, host: int, *, is_up: bool) -> None:
        """Pull or plug the cable; both ends see the carrier go."""
        assert self._switch is not None
        state = "up" if is_up else "down"
        self._switch.sh("ip", "link", "set", self.hosts[host].port, state)

    def set_blackhole(self, host: int, *, is_on: bool) -> None:
        """Drop every packet to and from a host, which sees its link still up."""
        assert self._switch is not None
        state = "0" if is_on else "3"
        self._switch.sh("bridge", "link", "set", "dev", self.hosts[host].port, "state", state)


def _probe_netem(switch: Namespace) -> bool:
    switch.sh("ip", "link", "set", "lo", "up")
    delay = ["root", "netem", "delay", "1ms"]
    has_netem = switch.sh("tc", "qdisc", "add", "dev", "lo", *delay, check=False).returncode == 0
    if has_netem:
        switch.sh("tc", "qdisc", "del", "dev", "lo", "root")
    return has_netem
