"""A compiled spec on as many processes as its plan needs. torch is not imported here.

One process: this one. Several: those of the launcher that started this one (torchrun, SLURM,
mpirun), or ranks of our own on this host.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from giantdsl import __version__
from giantdsl.driver import Compiled
from giantdsl.errors import SettingsError
from giantdsl.planning import make_parallel_plan, mesh_sizes, num_ranks, parallel_settings
from giantdsl.settings.values import ParallelSettings
from giantdsl.train.launch.environment import Hosts, check_world, detect

if TYPE_CHECKING:
    from giantdsl.plan import ParallelPlan
    from giantdsl.train.job import TrainJob
    from giantdsl.train.launch.context import LaunchOptions
    from giantdsl.train.launch.failure import Outcome

BACKENDS = ("auto", "giant", "gloo", "nccl")
_RUN_RANK = "giantdsl.train.ranks:run_rank"


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchChoice:
    """How the user wants ranks to be started: flags of `giantdsl train`.

    `nproc` is the number of ranks on this host, None: what the plan needs. `rdzv` is HOST:PORT of
    the host with `node_rank` 0.
    """

    nproc: int | None = None
    nnodes: int = 1
    node_rank: int = 0
    rdzv: str | None = None
    backend: str = "auto"


def auto_override(parallel: ParallelSettings, world: int | None) -> str | None:
    """`parallel.dp=4`: the one `auto` size (0) from the number of ranks, 1 where that is not known.

    Raises SettingsError where the ranks do not divide.
    """
    open_sizes = [axis for axis in parallel.order if getattr(parallel, axis) == 0]
    if not open_sizes:
        return None
    rest = num_ranks(parallel)
    total = rest if world is None else world
    if total % rest:
        raise SettingsError(
            f"{total} ranks do not divide by {rest}, what the sizes other than "
            f"`{open_sizes[0]} = auto` need"
        )
    return f"parallel.{open_sizes[0]}={total // rest}"


def launch(
    compiled: Compiled,
    job: TrainJob,
    choice: LaunchChoice,
    *,
    no_color: bool = False,
    run_here: Callable[[TrainJob], Outcome],
    warn: Callable[[str], None],
) -> Outcome:
    """Train `job` on the ranks of its plan; `run_here` does it on one process.

    `warn` gets the one line that says why ranks do not talk over the backend they should.

    Raises SettingsError for flags, a backend or a launcher that do not fit the plan, BuildError
    where a backend has to be built and cannot be.
    """
    rank = detect()
    parallel = parallel_settings(compiled)
    needed = num_ranks(parallel)
    if rank is None and parallel.nodes not in (None, choice.nnodes):
        raise SettingsError(
            f"`parallel.nodes = {parallel.nodes}`: start giantdsl on each host with"
            f" `--nnodes {parallel.nodes} --node-rank N --rdzv HOST:PORT`"
        )
    if rank is not None and (choice.nproc or choice.rdzv):
        raise SettingsError(
            f"{rank.launcher} has started this process: `--nproc` and `--rdzv` are for where "
            "giantdsl starts its own ranks"
        )
    if rank is not None:
        check_world(rank, needed, _layout(parallel))
    if needed == 1:
        return run_here(job)
    from giantdsl.train.launch import run_as_rank, run_local
    from giantdsl.train.ranks import RankJob

    plan = make_parallel_plan(compiled)
    options = _options(_backend(choice.backend, job.device, warn), plan)
    if parallel.compress is not None and options.backend != "giant":
        raise SettingsError(
            f"`parallel.compress` needs the backend `giant`, and this run is on {options.backend}"
        )
    argument = RankJob(replace(job, console=None), plan, no_color, parallel.compress)
    if rank is not None:
        return run_as_rank(rank, _RUN_RANK, lambda: argument, options)
    hosts, here = _hosts(choice, needed)
    return run_local(
        _RUN_RANK, argument, nproc=here, run_dir=job.run_dir, options=options, hosts=hosts
    )


def _hosts(choice: LaunchChoice, needed: int) -> tuple[Hosts | None, int]:
    if choice.nnodes == 1:
        if choice.nproc is not None and choice.nproc != needed:
            raise SettingsError(
                f"`--nproc {choice.nproc}`: the plan needs {needed} ranks; change the `parallel`"
                " section, or leave `--nproc` out"
            )
        return None, needed
    if choice.rdzv is None:
        raise SettingsError("`--nnodes` needs `--rdzv HOST:PORT`, the host with `--node-rank 0`")
    here, rest = divmod(needed, choice.nnodes)
    if rest or (choice.nproc or here) != here:
        raise SettingsError(
            f"the plan needs {needed} ranks, which {choice.nnodes} hosts with"
            f" {choice.nproc or here} each do not make"
        )
    return Hosts.parse(choice.nnodes, choice.node_rank, choice.rdzv), here


def _options(backend: str, plan: ParallelPlan) -> LaunchOptions:
    from giantdsl.train.launch.context import LaunchOptions

    same = {
        "the plan": hashlib.sha256(repr(plan).encode()).hexdigest()[:16],
        "giantdsl": __version__,
        "the backend": backend,
    }
    return LaunchOptions(backend=backend, same=same)


def _backend(name: str, device: str | None, warn: Callable[[str], None]) -> str:
    """The backend's name, built where it has to be: once, before ranks start and all wait for it."""
    if name not in BACKENDS:
        raise SettingsError(f"`--backend {name}` is not one of {', '.join(BACKENDS)}")
    if name == "giant":
        from giantdsl.backends.giant import build

        build()
    if name != "auto":
        return name
    from giantdsl.backends.choose import choose_backend

    chosen = choose_backend(device)
    if chosen.warning is not None:
        warn(chosen.warning)
    return str(chosen.name)


def _layout(parallel: ParallelSettings) -> str:
    return " ".join(f"{axis}={size}" for axis, size in mesh_sizes(parallel) if size > 1)
