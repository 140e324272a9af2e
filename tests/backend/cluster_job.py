"""A rank of a job that something befalls: run by test_cluster.py, once a rank.

Prints JSON lines: `ready` when the ranks have met, `end` with what it met with and what its process
held before and after the group.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

ELEMENTS = 1 << 16
LAST_S = 60.0
SETTLE_S = 3.0
PEER_THAT_DIFFERS = 3
SLEEP_S = 2.0
CALLS_OF_THE_SLOW = 4


def census() -> dict[str, int]:
    """What a process may leave lying: threads, open descriptors by kind, shared memory."""
    found = {"threads": len(os.listdir("/proc/self/task")), "shared maps": 0}
    for kind in ("socket", "memfd", "eventfd", "pidfd", "eventpoll"):
        found[kind] = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue  # the one that listed the folder
        for kind in ("socket", "memfd", "eventfd", "pidfd", "eventpoll"):
            found[kind] += kind in target
    for line in Path("/proc/self/maps").read_text().splitlines():
        found["shared maps"] += "memfd:" in line or "/dev/shm" in line
    return found


def settled(before: dict[str, int]) -> dict[str, int]:
    """The census, when nothing more than before is held, or after some time."""
    end = time.monotonic() + SETTLE_S
    after = census()
    while any(after[kind] > before[kind] for kind in before) and time.monotonic() < end:
        time.sleep(0.05)
        after = census()
    return after


def say(event: str, **more: object) -> None:
    print(json.dumps({"event": event, "rank": dist_rank(), **more}), flush=True)


def dist_rank() -> int:
    return int(os.environ["RANK"])


def checked_sum() -> None:
    x = torch.full((ELEMENTS,), float(dist_rank() + 1))
    dist.all_reduce(x)
    size = dist.get_world_size()
    assert bool((x == size * (size + 1) / 2).all()), f"a wrong sum: {x[:4]}"


def go_on() -> None:
    """Until something happens."""
    end = time.monotonic() + LAST_S
    while time.monotonic() < end:
        checked_sum()


def call_another_operation() -> None:
    if dist_rank() == PEER_THAT_DIFFERS:
        dist.broadcast(torch.zeros(ELEMENTS), 0)
    else:
        checked_sum()


def call_with_another_size() -> None:
    extra = 8 if dist_rank() == PEER_THAT_DIFFERS else 0
    dist.all_reduce(torch.zeros(ELEMENTS + extra))


def call_with_another_dtype() -> None:
    dtype = torch.int32 if dist_rank() == PEER_THAT_DIFFERS else torch.float32
    dist.all_reduce(torch.zeros(ELEMENTS, dtype=dtype))


def be_slow() -> None:
    for _ in range(CALLS_OF_THE_SLOW):
        if dist_rank() == PEER_THAT_DIFFERS:
            time.sleep(SLEEP_S)
        checked_sum()


SCENARIOS = {
    "go on": go_on,
    "operation": call_another_operation,
    "size": call_with_another_size,
    "dtype": call_with_another_dtype,
    "slow": be_slow,
}


def main(backend: str, scenario: str, timeout_s: float) -> None:
    if backend == "giant":
        importlib.import_module("giantdsl.backends.giant")
    torch.set_num_threads(1)
    torch.ones(4).sum()
    before = census()
    dist.init_process_group(backend, timeout=timedelta(seconds=timeout_s))
    checked_sum()
    say("ready")
    begin, kind, message = time.monotonic(), None, ""
    try:
        SCENARIOS[scenario]()
    except Exception as error:
        kind, message = type(error).__name__, str(error)
    seconds = time.monotonic() - begin
    dist.destroy_process_group()
    say("end", kind=kind, message=message, seconds=seconds, before=before, after=settled(before))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]))
