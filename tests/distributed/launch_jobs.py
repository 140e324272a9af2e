"""Toy jobs for tests of the launcher, and the programs that start them as a command line would.

python -m tests.distributed.launch_jobs local JOB RANKS RUN_DIR ARGUMENT
python -m tests.distributed.launch_jobs join JOB ARGUMENT
python -m tests.distributed.launch_jobs host JOB RANKS RUN_DIR ARGUMENT COUNT INDEX PORT
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from giantdsl.errors import GiantError, RuntimeFault, SettingsError
from giantdsl.train.launch import (
    Hosts,
    LaunchOptions,
    RankContext,
    check_world,
    detect,
    run_as_rank,
    run_local,
)

OPTIONS = LaunchOptions(timeout_s=60.0, silent_s=20.0, start_s=60.0)


def add(context: RankContext, argument: Any) -> int:
    """The sum of all ranks' numbers, times the argument."""
    import torch
    import torch.distributed as dist

    values = torch.tensor([context.rank.rank * argument])
    dist.all_reduce(values)
    return int(values)


@dataclass(frozen=True, slots=True)
class Saved:
    """What a training loop returns after a signal."""

    step: int
    signal: int


def steps(context: RankContext, argument: dict[str, Any]) -> Saved | None:
    """Collectives until something happens: `rank` does `what` after three of them.

    Every rank leaves its process number in `folder`, and `started` marks when all run.
    """
    import torch
    import torch.distributed as dist

    rank, folder = context.rank.rank, Path(argument["folder"])
    (folder / f"pid-{rank}").write_text(str(os.getpid()))
    print(f"rank {rank} speaks", flush=True)
    context.progress.note(stage=rank)
    stop: list[int] = []
    if argument["what"] == "save on signal":
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda number, frame: stop.append(number))
    for step in range(1, 10_000):
        context.progress.note(step=step, instruction="Forward(2)")
        if step == 4:
            (folder / f"started-{rank}").touch()
            if rank == argument["rank"]:
                misbehave(argument["what"])
            elif argument.get("later") == rank:
                while not (folder / f"started-{argument['rank']}").exists():
                    time.sleep(0.01)
                time.sleep(0.2)
                raise ValueError("a second failure, of no interest")
        found = torch.tensor([stop[0] if stop else 0])
        dist.all_reduce(found, dist.ReduceOp.MAX)
        if int(found):
            (folder / f"saved-{rank}").touch()
            return Saved(step, int(found))
        time.sleep(0.02)
    return None


def misbehave(what: str) -> None:
    match what:
        case "raise":
            raise ValueError("the first failure")
        case "fault":
            raise RuntimeFault("step 4: the loss is not finite")
        case "settings":
            raise SettingsError("`train.data` names no file")
        case "exit":
            os._exit(3)
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        case "sleep":
            time.sleep(60.0)
        case "hold the interpreter":
            # Called with the lock held: no thread of the process runs any more.
            ctypes.PyDLL(None).sleep(60)
        case "mismatch":
            import torch
            import torch.distributed as dist

            dist.all_reduce(torch.ones(3, dtype=torch.float64))


def main(words: list[str]) -> int:
    how, name, *rest = words
    job = f"tests.distributed.launch_jobs:{name}"
    try:
        if how == "join":
            rank = detect()
            if rank is None:
                raise SystemExit("no launcher")
            check_world(rank, 2)
            argument = _argument(rest[0])
            options = _options(argument)
            if name == "plan that differs":
                options = replace(options, same={"the plan": f"plan {rank.rank}"})
            outcome = run_as_rank(rank, job, lambda: argument, options)
        else:
            ranks, run_dir, text, *more = rest
            argument = _argument(text)
            hosts = None
            if how == "host":
                count, index, port = more
                hosts = Hosts.parse(int(count), int(index), f"127.0.0.1:{port}")
            outcome = run_local(
                job,
                argument,
                nproc=int(ranks),
                run_dir=Path(run_dir),
                options=_options(argument),
                hosts=hosts,
            )
    except GiantError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2 if isinstance(error, SettingsError) else 1
    if outcome.failure is None and outcome.value is not None:
        print(f"value: {outcome.value}")
    return outcome.exit_code


def _argument(text: str) -> Any:
    return json.loads(text)


def _options(argument: Any) -> LaunchOptions:
    what = argument.get("what") if isinstance(argument, dict) else None
    match what:
        case "mismatch":
            return replace(OPTIONS, check_collectives=True)
        case "sleep":
            return replace(OPTIONS, timeout_s=4.0)
        case "hold the interpreter":
            return replace(OPTIONS, silent_s=4.0)
    return OPTIONS


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
