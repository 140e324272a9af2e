"""How a job gets its ranks, and how it loses them: all at once, with one message.

    environment.py  which launcher started this process, if any
    local.py        `run_local`: start ranks on this host and stand by them
    joined.py       `run_as_rank`: be one rank of what torchrun, SLURM or mpirun started
    children.py     the processes that `run_local` started, seen from outside
    worker.py       the program of a rank that `run_local` started
    watch.py        what is known of every rank, and the verdict: who failed first
    monitor.py      the same watch over ranks on many hosts, in rank 0
    link.py         a rank's line to whoever watches it
    context.py      what a job gets, and how long is waited for whom
    rendezvous.py   inside a rank: store, process group, the job between start and end
    place.py        processes: where, stopped or not, bound to their parent
    channel.py      messages over a socket
    failure.py      a failure as data, and as text
    same.py         values that must be equal on all ranks

A job is a function `job(context, argument)` of a module that can be imported. It gets a
`RankContext` and the argument, and returns what rank 0 hands back. It runs inside a process group.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from giantdsl.train.launch.context import LaunchOptions, RankContext
    from giantdsl.train.launch.environment import Hosts, Rank, check_world, detect
    from giantdsl.train.launch.failure import Failure, Outcome, Progress, print_failure
    from giantdsl.train.launch.joined import run_as_rank
    from giantdsl.train.launch.local import run_local
    from giantdsl.train.launch.same import check_same

_HOME = {
    "Failure": "failure",
    "Hosts": "environment",
    "LaunchOptions": "context",
    "Outcome": "failure",
    "Progress": "failure",
    "Rank": "environment",
    "RankContext": "context",
    "check_same": "same",
    "check_world": "environment",
    "detect": "environment",
    "print_failure": "failure",
    "run_as_rank": "joined",
    "run_local": "local",
}

__all__ = [
    "Failure",
    "Hosts",
    "LaunchOptions",
    "Outcome",
    "Progress",
    "Rank",
    "RankContext",
    "check_same",
    "check_world",
    "detect",
    "print_failure",
    "run_as_rank",
    "run_local",
]


def __getattr__(name: str) -> Any:
    # Loaded when first used: the process that starts ranks must not wait for torch.
    if name not in _HOME:
        raise AttributeError(f"module `{__name__}` has no attribute `{name}`")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
