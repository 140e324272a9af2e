"""Inside a rank: the store, the process group, and the job between its start and its end."""

from __future__ import annotations

import importlib
import signal
import socket
import time
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from giantdsl.errors import RuntimeFault, SettingsError
from giantdsl.train.launch.channel import Message
from giantdsl.train.launch.context import LaunchOptions, RankContext
from giantdsl.train.launch.environment import Rank
from giantdsl.train.launch.failure import Interrupted, Progress, describe

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

LOOPBACK = "127.0.0.1"


def perform(
    rank: Rank,
    job: str,
    argument: Callable[[], Any],
    store: Callable[[], Store],
    progress: Progress,
    options: LaunchOptions,
) -> tuple[Message, Any]:
    """The job in its process group: what to report, and what it returned.

    Whatever is raised becomes the report: the connections stay open until it has been sent, so
    that the first failure is known before others see its consequences.
    """
    host = socket.gethostname()
    try:
        context = RankContext(rank, progress, store())
        join_group(rank, context.store, options)
        module, _, name = job.partition(":")
        value = getattr(importlib.import_module(module), name)(context, argument())
    except KeyboardInterrupt:
        return {"kind": "interrupted", "signal": int(signal.SIGINT)}, None
    except Interrupted as stop:
        return {"kind": "interrupted", "signal": stop.number}, None
    except BaseException as error:
        failure = describe(error, rank.rank, host, progress)
        return {"kind": "error", "failure": failure.as_json()}, None
    return {"kind": "done"}, value


def join_group(rank: Rank, store: Store, options: LaunchOptions) -> None:
    """Compare what must be the same everywhere, then make the default process group."""
    import torch
    import torch.distributed as dist
    from torch._C._distributed_c10d import PrefixStore

    from giantdsl.train.launch.same import check_same_in_store

    # As one exchange, in an order that does not depend on the rank.
    values = {"torch": torch.__version__, **options.same}
    check_same_in_store(store, rank.rank, rank.world, values, timeout_s=options.start_s)
    if options.check_collectives:
        dist.set_debug_level(dist.DebugLevel.DETAIL)  # type: ignore[attr-defined]
    if options.backend == "giant":
        from giantdsl.backends.giant import register

        register()
    if options.backend == "nccl":
        if not torch.cuda.is_available():
            raise SettingsError("`--backend nccl` needs CUDA devices; torch sees none here")
        if rank.local_rank >= torch.cuda.device_count():
            raise SettingsError(
                f"rank {rank.rank} is number {rank.local_rank} on its host, which has"
                f" {torch.cuda.device_count()} CUDA devices; start fewer ranks there"
            )
        torch.cuda.set_device(rank.local_rank)
    dist.init_process_group(
        options.backend,
        store=PrefixStore("group", store),
        rank=rank.rank,
        world_size=rank.world,
        timeout=timedelta(seconds=options.timeout_s),
    )


def leave_group() -> None:
    """After every rank is done: nothing is in flight any more."""
    import torch.distributed as dist

    if dist.is_initialized():
        dist.destroy_process_group()


def open_loopback_store(start_s: float) -> tuple[Store, int]:
    """A store for this host's ranks, and its port. The port is bound before anyone names it."""
    from torch._C._distributed_c10d import TCPStore

    listener = socket.create_server((LOOPBACK, 0))
    port: int = listener.getsockname()[1]
    store = TCPStore(
        LOOPBACK,
        port,
        None,
        True,
        timeout=timedelta(seconds=start_s),
        wait_for_workers=False,
        master_listen_fd=listener.detach(),
    )
    return store, port


def join_store(host: str, port: int, start_s: float) -> Store:
    from torch._C._distributed_c10d import TCPStore

    return TCPStore(
        host, port, None, False, timeout=timedelta(seconds=start_s), wait_for_workers=False
    )


def open_store(rank: Rank, options: LaunchOptions) -> Store:
    """The store of a job that a launcher started. Raises SettingsError where none is reached."""
    import torch.distributed as dist
    from torch._C._distributed_c10d import PrefixStore, TCPStore

    meeting = rank.rendezvous
    hosts_it = rank.rank == 0 and not meeting.is_hosted
    started = time.monotonic()
    try:
        store = TCPStore(
            meeting.host,
            meeting.port,
            None,
            hosts_it,
            timeout=timedelta(seconds=options.start_s),
            wait_for_workers=False,
        )
    except (dist.DistError, RuntimeError) as error:
        first_line = str(error).splitlines()[0]
        if hosts_it:
            raise SettingsError(
                f"port {meeting.port} on {meeting.host}, where the ranks meet, cannot be opened"
                f" ({first_line}); choose another one"
            ) from error
        raise RuntimeFault(
            f"rank 0 was not reached at {meeting.host}:{meeting.port} within"
            f" {time.monotonic() - started:.0f} s ({first_line})"
        ) from error
    return PrefixStore(f"giantdsl/{meeting.attempt}", store)
