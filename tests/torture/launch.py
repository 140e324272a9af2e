"""Kill or stop one rank at a random moment, again and again, under every launcher.

    python -m tests.torture.launch [--times 20] [--seed 0]

Each time the job has to end on all ranks within ten seconds, with one message that names the
rank, an exit code that is not 0, and no process left. Ranks of our own are hit at any moment from
their first; those of other launchers when all have met, since before that only the launcher knows
of them. Exit code 1 and what was seen if it is otherwise.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from tests.distributed.launching import LAUNCHERS, Ended, Started, steps

NUMBERS = (signal.SIGKILL, signal.SIGKILL, signal.SIGSTOP)


def ranks_of(started: Started) -> dict[int, int]:
    """Process numbers of the ranks that `run_local` started, by rank."""
    found = {}
    for pid in started.left():
        with suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
            if "giantdsl.train.launch.worker" in words:
                found[int(words[words.index("--rank") + 1])] = pid
    return found


def strike_early(started: Started, draw: random.Random) -> tuple[int, float]:
    """A rank of our own, some time after its process began."""
    while not ranks_of(started):
        time.sleep(0.01)
    time.sleep(draw.uniform(0.0, 5.0))
    ranks = ranks_of(started)
    rank = draw.choice(sorted(ranks))
    return strike(rank, ranks[rank], draw)


def strike_late(started: Started, draw: random.Random, world: int) -> tuple[int, float]:
    """Any rank, when all are at work."""
    started.wait_for(*(f"started-{rank}" for rank in range(world)))
    time.sleep(draw.uniform(0.0, 2.0))
    rank = draw.randrange(world)
    return strike(rank, int((started.folder / f"pid-{rank}").read_text()), draw)


def strike(rank: int, pid: int, draw: random.Random) -> tuple[int, float]:
    at = time.time()
    os.kill(pid, draw.choice(NUMBERS))
    return rank, at


def complaint(ended: Ended, rank: int) -> str:
    """What is wrong with this end; "" if nothing."""
    if any(code == 0 for code in ended.codes):
        return f"exit codes {ended.codes}"
    if len(ended.errors) != 1 or f"rank {rank} " not in ended.errors[0]:
        return f"messages {ended.errors}"
    if ended.seconds > 10.0:
        return f"it took {ended.seconds:.1f} s"
    return ""


def torture(times: int, seed: int, launchers: list[str], say: bool = True) -> str:
    """The first end that is not as it should be; "" if there is none."""
    draw = random.Random(seed)
    for i in range(times):
        name = draw.choice(launchers)
        with tempfile.TemporaryDirectory() as text:
            folder = Path(text)
            started = LAUNCHERS[name](folder, "steps", steps(folder, "nothing", 9))
            if name == "local" and draw.random() < 0.6:
                rank, at = strike_early(started, draw)
            else:
                rank, at = strike_late(started, draw, 4 if name == "hosts" else 2)
            ended = started.end(since=at)
            found = complaint(ended, rank)
            if say:
                print(f"{i + 1}: {name}, {ended.seconds:.1f} s, {ended.errors}", flush=True)
            if found:
                return f"{name}, rank {rank}: {found}\n{''.join(ended.outputs)}"
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--launcher", choices=sorted(LAUNCHERS), action="append")
    args = parser.parse_args()
    found = torture(args.times, args.seed, args.launcher or sorted(LAUNCHERS))
    print(found or "every job ended as it should")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
