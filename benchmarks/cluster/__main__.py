"""Run a command on an emulated cluster: `python -m benchmarks.cluster [options] -- COMMAND`."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import NoReturn

from . import EVENTS, Cluster, parse_time

_EXAMPLES = """examples:
  one command on each of 2 hosts; HOST_RANK, HOSTS, MASTER_ADDR, ... are in its environment
    --hosts 2 --bandwidth 1gbit -- sh -c 'hostname; ip -br addr'
  one process a rank, with RANK, WORLD_SIZE, LOCAL_RANK, ...
    --hosts 2 --local-size 4 --bandwidth 1gbit --latency 0.2ms --per rank -- python job.py
  faults during a run
    --hosts 2 --local-size 2 --per rank --at '3s kill-rank 1' -- python job.py
    --hosts 4 --per rank --at '4s blackhole 3' --at '6s heal 3' -- python job.py
events: """


def main(arguments: Sequence[str] | None = None) -> int:
    """The first exit code of the command that is not 0."""
    parser = _parser()
    args = parser.parse_args(arguments)
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not command:
        parser.error("no command")
    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(signum, _leave)
    with Cluster(
        args.hosts, args.local_size, args.bandwidth, args.latency,
        queue_bytes=args.queue, congestion=args.congestion,
    ) as cluster:  # fmt: skip
        result = cluster.run(
            command, args.per, timeout_s=args.timeout, events=args.at, grace_s=args.grace
        )
    if args.json:
        Path(args.json).write_text(json.dumps({"ok": result.is_ok, **asdict(result)}))
    if not result.is_ok:
        late = " (timed out)" if result.timed_out else ""
        print(f"cluster: exit codes {result.codes}{late}", file=sys.stderr)
    return result.code if result.code >= 0 else 128 - result.code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.cluster",
        description="Run a command on an emulated cluster.",
        epilog=_EXAMPLES + "; ".join(EVENTS),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--hosts", type=int, default=2)
    add("--local-size", type=int, default=1, help="ranks a host")
    add("--bandwidth", help="of each host's port, such as 1gbit (default: unshaped)")
    add("--latency", help="one way between two hosts, such as 0.2ms (default: none)")
    add("--queue", type=int, default=1 << 20, metavar="BYTES", help="what a port may queue")
    add("--congestion", default="cubic", help="TCP congestion control")
    add("--per", choices=("host", "rank", "torchrun", "launcher"), default="host",
        help="run it once a host (default), once a rank, under torchrun, or once in all, as the "
        "launcher of the rest (mpirun)")  # fmt: skip
    add("--timeout", type=parse_time, help="kill all after this time, exit 124")
    add("--grace", type=parse_time, help="after a first failure, give the others this long")
    add("--at", action="append", type=_event, default=[], metavar="'TIME EVENT'",
        help="do something during the run, such as --at '3s kill-rank 1'")  # fmt: skip
    add("--json", metavar="FILE", help="write exit codes and times there")
    add("command", nargs=argparse.REMAINDER, help="-- COMMAND [ARG...]")
    return parser


def _event(text: str) -> tuple[float, str]:
    when, _, action = text.strip().partition(" ")
    return parse_time(when), action.strip()


def _leave(signum: int, frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + signum)


if __name__ == "__main__":
    sys.exit(main())
