"""Faults and changes during a run, as text: 'kill-rank 3', 'blackhole 1'."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .emulated import Cluster

EVENTS = (
    "kill-rank R [SIGNAL]",
    "stop-rank R",
    "kill-host H",
    "link-down H",
    "link-up H",
    "blackhole H",
    "heal H",
    "bandwidth BW [H]",
)


def perform(cluster: Cluster, action: str) -> None:
    """Carry out one of EVENTS. ValueError for any other."""
    name, *words = action.split()
    if name == "kill-rank":
        signum = getattr(signal, words[1]) if words[1:] else signal.SIGKILL
        cluster.signal_rank(int(words[0]), signum)
    elif name == "stop-rank":
        cluster.signal_rank(int(words[0]), signal.SIGSTOP)
    elif name == "kill-host":
        cluster.kill_host(int(words[0]))
    elif name in ("link-down", "link-up"):
        cluster.set_link(int(words[0]), is_up=name == "link-up")
    elif name in ("blackhole", "heal"):
        cluster.set_blackhole(int(words[0]), is_on=name == "blackhole")
    elif name == "bandwidth":
        cluster.set_bandwidth(words[0], int(words[1]) if words[1:] else None)
    else:
        raise ValueError(f"unknown event {action!r}; known: {', '.join(EVENTS)}")
