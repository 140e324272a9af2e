"""One emulated host: namespaces, an address, and a shaped port on the switch."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .namespace import Namespace
from .relay import Relay

SUBNET = "10.77.0"
"""Seen only inside an emulated cluster, so every cluster may use it."""
_UNSHAPED_SEGMENT = 65536


@dataclass(frozen=True, slots=True)
class Fabric:
    """What all ports have in common. `latency_s` is one way between two hosts.

    `queue_bytes` is what a port holds before it drops packets: a switch's buffer.
    """

    folder: Path
    switch: Namespace
    latency_s: float
    queue_bytes: int
    congestion: str
    has_netem: bool


class Host:
    """Host number `index` on the fabric, plugged in but not shaped."""

    def __init__(self, fabric: Fabric, index: int) -> None:
        self._fabric, self.index = fabric, index
        self.name, self.address, self.port = f"h{index}", f"{SUBNET}.{index + 1}", f"p{index}"
        self.relay: Relay | None = None
        boot_id = fabric.folder / f"boot_id.{index}"
        boot_id.write_text(f"{uuid.uuid4()}\n")
        self.namespace = Namespace(
            ["--net", "--mount", "--uts", "--ipc", "--pid", "--mount-proc"],
            setup=" && ".join(
                [
                    "mount -t tmpfs -o mode=1777 shm /dev/shm",
                    f"mount --bind {boot_id} /proc/sys/kernel/random/boot_id",
                    f"mount --bind {fabric.folder}/hosts /etc/hosts",
                    f"hostname {self.name}",
                    "ip link set lo up",
                    # A namespace may only choose what the machine allows; reno always is, and it
                    # is what cubic behaves as at the round-trip times of a cluster.
                    f"(sysctl -qw net.ipv4.tcp_congestion_control={fabric.congestion} 2>&1"
                    " || sysctl -qw net.ipv4.tcp_congestion_control=reno) >/dev/null",
                ]
            ),
        )

    def plug(self) -> None:
        """Lay the cable between this host and the switch."""
        fabric, switch = self._fabric, self._fabric.switch
        if fabric.latency_s and not fabric.has_netem:
            each_s = fabric.latency_s / 2  # a packet passes two relays
            self.relay = Relay(self.namespace.pid, "eth0", switch.pid, self.port, each_s)
        else:
            # Made inside the host, and the far end moved: the machine's own names stay untouched.
            self.namespace.sh(
                "ip", "link", "add", "eth0", "type", "veth",
                "peer", "name", self.port, "netns", str(switch.pid),
            )  # fmt: skip
        self.namespace.sh("ip", "addr", "add", f"{self.address}/24", "dev", "eth0")
        self.namespace.sh("ip", "link", "set", "eth0", "up")
        switch.sh("ip", "link", "set", self.port, "master", "br0", "up")

    def shape(self, bandwidth: float | None) -> None:
        """Limit what the host sends (its interface) and receives (the switch's port), in bits/s."""
        for namespace, device in ((self.namespace, "eth0"), (self._fabric.switch, self.port)):
            self._shape_end(namespace, device, bandwidth)

    def _shape_end(self, namespace: Namespace, device: str, bandwidth: float | None) -> None:
        # Removed, not changed: tbf would wait for ever for tokens for a packet that was queued
        # under a larger burst. What is queued is lost, as TCP will notice.
        namespace.sh("tc", "qdisc", "del", "dev", device, "root", check=False)
        # A quarter of a millisecond of burst: a real link has none, but a timer has a grain.
        # Segments are kept to half of the burst: one of nearly the whole burst would have to wait
        # for a full bucket whenever an acknowledgement had taken from it, and the two directions
        # of a link would starve one another.
        burst = int(min(max((bandwidth or 0) / 8 * 250e-6, 8000), 65536))
        segment = burst // 2 if bandwidth else _UNSHAPED_SEGMENT
        namespace.sh("ip", "link", "set", device, "gso_max_size", str(segment))
        parent = ["root"]
        if bandwidth:
            namespace.sh(
                "tc", "qdisc", "add", "dev", device, "root", "handle", "1:", "tbf",
                "rate", f"{bandwidth:.0f}bit", "burst", str(burst),
                "limit", str(self._fabric.queue_bytes),
            )  # fmt: skip
            parent = ["parent", "1:"]
        if self._fabric.latency_s and self._fabric.has_netem:
            delay = f"{self._fabric.latency_s / 2 * 1e6:.0f}us"
            namespace.sh(
                "tc", "qdisc", "add", "dev", device, *parent, "netem",
                "delay", delay, "limit", "20000",
            )  # fmt: skip

    def pids(self) -> Iterator[int]:
        """The processes in this host, as seen from outside, without its init."""
        mine = os.stat(f"/proc/{self.namespace.pid}/ns/pid").st_ino
        for entry in os.listdir("/proc"):
            if entry.isdigit() and int(entry) != self.namespace.pid:
                try:
                    if os.stat(f"/proc/{entry}/ns/pid").st_ino == mine:
                        yield int(entry)
                except OSError:
                    continue  # it has ended meanwhile

    def counters(self) -> tuple[int, int]:
        """Bytes sent and received by this host's network interface so far."""
        shown = self.namespace.sh("ip", "-j", "-s", "link", "show", "eth0").stdout
        stats = json.loads(shown)[0]["stats64"]
        return stats["tx"]["bytes"], stats["rx"]["bytes"]

    def close(self) -> None:
        self.namespace.kill()
        if self.relay is not None:
            self.relay.kill()
