"""An emulated cluster on one Linux machine, for tests and benchmarks of distributed programs.

Each emulated host is a set of Linux namespaces with its own network stack, host name, boot id,
process table, System V IPC and /dev/shm, so that a program sees it as another machine. The hosts
hang off one bridge ("the switch", in a network namespace of its own), and each host's port is
shaped in both directions to a bandwidth, and optionally delayed. Nothing is made in the machine's
own network namespace, no namespace has a name, and every one dies with this process, even by
SIGKILL (which leaves only a small folder /tmp/emucluster-*). So runs cannot clash, and there is
nothing to clean up. They die with the thread that made the Cluster: make it in the main one.

    with Cluster(hosts=2, local_size=4, bandwidth="1gbit") as cluster:
        result = cluster.run(["python", "job.py"], per="rank", timeout_s=60)
        assert result.is_ok, result.codes

It needs root, iproute2 and util-linux (unshare, nsenter). `python -m benchmarks.cluster --help`
is the same on the command line.

Latency uses the kernel's netem where it has it. Where it has not, each host gets a TAP pair and a
small process that holds every packet back. That takes processor time from the ranks and cannot do
less than some 0.1 ms one way, so leave latency unset where it does not matter: the bare veth pairs
have a round trip of 30-40 us, which is what a good Ethernet has.
"""

from .emulated import Cluster
from .faults import EVENTS
from .permission import why_not
from .running import TIMEOUT_CODE, Result
from .units import parse_bandwidth, parse_time

__all__ = [
    "EVENTS",
    "TIMEOUT_CODE",
    "Cluster",
    "Result",
    "parse_bandwidth",
    "parse_time",
    "why_not",
]
