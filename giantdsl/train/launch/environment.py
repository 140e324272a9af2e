"""Who started this process: torchrun, SLURM, Open MPI, MPICH, or a person who wants ranks started.

The only module of `launch` that reads environment variables. No torch.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from giantdsl.errors import SettingsError

Environ = Mapping[str, str]

_FIRST_SPECIAL_STEP = 0xFFFFFFF0
"""SLURM numbers steps that are no `srun` (batch script, interactive shell) from here on."""


@dataclass(frozen=True, slots=True)
class Rendezvous:
    """Where the ranks meet. `is_hosted`: somebody else's store listens there (torchrun's agent);
    otherwise rank 0 opens one. `attempt` counts restarts, whose keys must not meet."""

    host: str
    port: int
    is_hosted: bool = False
    attempt: int = 0


@dataclass(frozen=True, slots=True)
class Rank:
    """One process of the job, as its launcher numbers it."""

    rank: int
    world: int
    local_rank: int
    local_world: int
    rendezvous: Rendezvous
    launcher: str


@dataclass(frozen=True, slots=True)
class Hosts:
    """`--nnodes`, `--node-rank` and `--rdzv`: this host is number `index` of `count`."""

    count: int
    index: int
    rendezvous: Rendezvous

    @classmethod
    def parse(cls, nnodes: int, node_rank: int, rdzv: str) -> Hosts:
        """Raises SettingsError for what no hosts can have."""
        if nnodes < 1 or not 0 <= node_rank < nnodes:
            raise SettingsError(
                f"`--node-rank {node_rank}` with `--nnodes {nnodes}`: hosts are numbered from 0 to"
                " their number less one"
            )
        host, _, port = rdzv.rpartition(":")
        if not host or not port.isdigit() or not 0 < int(port) < 65536:
            raise SettingsError(
                f"`--rdzv {rdzv}`: write HOST:PORT, the host with `--node-rank 0` and a free port"
                " there"
            )
        return cls(nnodes, node_rank, Rendezvous(host.strip("[]"), int(port)))


def detect(environ: Environ = os.environ) -> Rank | None:
    """This process's place in a job that a launcher started; None: nobody did, start own ranks.

    Raises SettingsError, in one line, for variables that are missing or contradict each other.
    """
    if "TORCHELASTIC_RUN_ID" in environ or "RANK" in environ:
        found: Rank | None = _from_torchrun(environ)
    elif "OMPI_COMM_WORLD_RANK" in environ:
        # Before SLURM: Open MPI's daemons are tasks of srun, and their children inherit its numbers.
        found = _from_mpi(environ, "Open MPI", "OMPI_COMM_WORLD_")
    elif _is_slurm_task(environ) and not _is_mpich_inside_slurm(environ):
        found = _from_slurm(environ)
    elif "PMI_RANK" in environ and "PMI_SIZE" in environ:
        found = _from_mpi(environ, "MPICH", "PMI_")
    else:
        return None
    return None if found is None else _checked(found)


def check_world(rank: Rank, needed: int, layout: str = "") -> None:
    """Raises SettingsError where the launcher started another number of ranks than the plan has.

    `layout` describes the plan in the message: `dp=2 tp=2`.
    """
    if rank.world == needed:
        return
    described = f" ({layout})" if layout else ""
    raise SettingsError(
        f"the plan needs {needed} {_ranks(needed)}{described}, but {rank.launcher} started"
        f" {rank.world}; start {needed}, or change the `parallel` section so that dp·tp·pp·cp·ep"
        f" is {rank.world}"
    )


def num_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def child_environment(
    num_ranks: int, *, is_alone: bool, environ: Environ = os.environ
) -> dict[str, str]:
    """What a rank of our own sees: the user's environment, and what it leaves open.

    Each of the host's `num_ranks` gets a fair share of the cores: more threads than cores make
    all wait for each other. Ranks that are alone with their host need no address that the
    network knows, or that changes with it.
    """
    ours = {"OMP_NUM_THREADS": str(max(1, num_cores() // num_ranks))}
    if is_alone and sys.platform == "linux":
        ours["GLOO_SOCKET_IFNAME"] = "lo"
    return {**ours, **environ}


# ---- the launchers ------------------------------------------------------------------------


def _from_torchrun(environ: Environ) -> Rank:
    who = "torchrun" if "TORCHELASTIC_RUN_ID" in environ else "RANK and WORLD_SIZE"
    return Rank(
        rank=_number(environ, "RANK", who),
        world=_number(environ, "WORLD_SIZE", who),
        local_rank=_number(environ, "LOCAL_RANK", who, default=0),
        local_world=_number(environ, "LOCAL_WORLD_SIZE", who, default=1),
        rendezvous=Rendezvous(
            host=_text(environ, "MASTER_ADDR", who),
            port=_number(environ, "MASTER_PORT", who),
            is_hosted=environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
            attempt=_number(environ, "TORCHELASTIC_RESTART_COUNT", who, default=0),
        ),
        launcher=who,
    )


def _from_mpi(environ: Environ, who: str, prefix: str) -> Rank:
    local = {
        "Open MPI": ("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
        "MPICH": ("MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    }[who]
    return Rank(
        rank=_number(environ, f"{prefix}RANK", who),
        world=_number(environ, f"{prefix}SIZE", who),
        local_rank=_number(environ, local[0], who, default=0),
        local_world=_number(environ, local[1], who, default=1),
        rendezvous=_master(environ, who),
        launcher=who,
    )


def _master(environ: Environ, who: str) -> Rendezvous:
    missing = [name for name in ("MASTER_ADDR", "MASTER_PORT") if not environ.get(name)]
    if missing:
        flag = "-x" if who == "Open MPI" else "-genv"
        raise SettingsError(
            f"started by {who}, which does not say where ranks meet: set"
            f" {' and '.join(missing)} (host of rank 0, and a free port there) for all ranks, as in"
            f" `mpirun {flag} MASTER_ADDR{'=' if flag == '-x' else ' '}HOST"
            f" {flag} MASTER_PORT{'=' if flag == '-x' else ' '}29500 …`"
        )
    return Rendezvous(environ["MASTER_ADDR"], _number(environ, "MASTER_PORT", who))


def _is_slurm_task(environ: Environ) -> bool:
    """Started by `srun`? Inside an allocation, shells and batch scripts see SLURM_NTASKS too."""
    if "SLURM_PROCID" not in environ or "SLURM_NTASKS" not in environ:
        return False
    step = environ.get("SLURM_STEP_ID", environ.get("SLURM_STEPID"))
    if step is None:
        # Seen in batch scripts, which are one process however many tasks the job has.
        return environ.get("ENVIRONMENT") != "BATCH"
    if step.isdigit() and int(step) >= _FIRST_SPECIAL_STEP:
        return False
    return environ.get("SLURM_STEP_NUM_TASKS", environ["SLURM_NTASKS"]) != "1"


def _is_mpich_inside_slurm(environ: Environ) -> bool:
    """Did Hydra start this rank through srun? Then SLURM's numbers are those of its proxy."""
    if "PMI_RANK" not in environ or "PMI_SIZE" not in environ:
        return False
    pmi = environ["PMI_RANK"], environ["PMI_SIZE"]
    return pmi != (environ["SLURM_PROCID"], _slurm_size(environ))


def _from_slurm(environ: Environ) -> Rank | None:
    who = "SLURM"
    size = _slurm_size(environ)
    world = _number({"SLURM_NTASKS": size}, "SLURM_NTASKS", who)
    if world == 1:
        return None
    return Rank(
        rank=_number(environ, "SLURM_PROCID", who),
        world=world,
        local_rank=_number(environ, "SLURM_LOCALID", who),
        local_world=_tasks_here(environ, world),
        rendezvous=Rendezvous(_slurm_host(environ), _slurm_port(environ)),
        launcher=who,
    )


def _slurm_size(environ: Environ) -> str:
    return environ.get("SLURM_STEP_NUM_TASKS", environ["SLURM_NTASKS"])


def _slurm_host(environ: Environ) -> str:
    if environ.get("MASTER_ADDR"):
        return environ["MASTER_ADDR"]
    for name in ("SLURM_STEP_NODELIST", "SLURM_NODELIST", "SLURM_JOB_NODELIST"):
        if environ.get(name):
            return first_host(environ[name])
    raise SettingsError(
        "started by SLURM, but neither SLURM_NODELIST nor SLURM_JOB_NODELIST is set;"
        " set MASTER_ADDR to the host of rank 0"
    )


def _slurm_port(environ: Environ) -> int:
    """The same on all ranks, another for other jobs and steps, and below the ports that the
    system hands out by itself (32768 and up on Linux)."""
    if environ.get("MASTER_PORT"):
        return _number(environ, "MASTER_PORT", "SLURM")
    job = _number(environ, "SLURM_JOB_ID", "SLURM")
    step = _number(environ, "SLURM_STEP_ID", "SLURM", default=0)
    return 15000 + (job * 7 + step) % 15000


def first_host(nodelist: str) -> str:
    """`node[007-010,12],x3` -> `node007`: the first of SLURM's list of hosts."""
    first = re.match(r"(?:\[[^]]*\]|[^,\[])+", nodelist.strip())
    if first is None:
        raise SettingsError(f"SLURM's list of hosts `{nodelist}` names none")
    return re.sub(r"\[([^],-]*)[^]]*\]", r"\1", first[0])


def _tasks_here(environ: Environ, world: int) -> int:
    """From `4(x2),3`, the tasks on each host in order; all of them where SLURM does not say."""
    listed = environ.get("SLURM_STEP_TASKS_PER_NODE", environ.get("SLURM_TASKS_PER_NODE", ""))
    counts: list[int] = []
    for count, times in re.findall(r"(\d+)(?:\(x(\d+)\))?", listed):
        counts += [int(count)] * int(times or 1)
    node = _number(environ, "SLURM_NODEID", "SLURM", default=0)
    return counts[node] if node < len(counts) else world


# ---- values -------------------------------------------------------------------------------


def _checked(found: Rank) -> Rank:
    if found.world < 1 or not found.rank < found.world:
        raise SettingsError(
            f"{found.launcher} says that this is rank {found.rank} of {found.world};"
            f" ranks go from 0 to the number of ranks less one"
        )
    if found.local_rank > found.rank:
        raise SettingsError(
            f"{found.launcher} says that rank {found.rank} is number {found.local_rank} on its"
            " host, which cannot be; are variables of another launcher left in the environment?"
        )
    if not 0 < found.rendezvous.port < 65536:
        raise SettingsError(
            f"{found.launcher}: the port where ranks meet is {found.rendezvous.port};"
            " MASTER_PORT must lie between 1 and 65535"
        )
    return found


def _text(environ: Environ, name: str, who: str) -> str:
    value = environ.get(name, "")
    if not value:
        raise SettingsError(f"started by {who}, but {name} is not set")
    return value


def _number(environ: Environ, name: str, who: str, default: int | None = None) -> int:
    if default is not None and not environ.get(name):
        return default
    value = _text(environ, name, who)
    if not re.fullmatch(r"\d+", value):
        raise SettingsError(f"started by {who}, but {name} is `{value}`, which is no number")
    return int(value)


def _ranks(count: int) -> str:
    return "rank" if count == 1 else "ranks"
