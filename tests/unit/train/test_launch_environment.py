"""Which launcher started a process, from its environment."""

from __future__ import annotations

import pytest

from giantdsl.errors import SettingsError
from giantdsl.train.launch.environment import (
    Hosts,
    Rank,
    Rendezvous,
    check_world,
    child_environment,
    detect,
    first_host,
)

TORCHRUN = {
    "RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4",
    "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500", "TORCHELASTIC_RUN_ID": "none",
    "TORCHELASTIC_RESTART_COUNT": "2", "TORCHELASTIC_USE_AGENT_STORE": "True",
}  # fmt: skip
SLURM = {
    "SLURM_PROCID": "5", "SLURM_NTASKS": "7", "SLURM_LOCALID": "1", "SLURM_NODEID": "1",
    "SLURM_STEP_ID": "3", "SLURM_STEP_NUM_TASKS": "7", "SLURM_STEP_TASKS_PER_NODE": "4,3",
    "SLURM_JOB_ID": "4711", "SLURM_JOB_NODELIST": "gpu[07-08]",
}  # fmt: skip
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "5", "OMPI_COMM_WORLD_SIZE": "8", "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "4", "MASTER_ADDR": "a", "MASTER_PORT": "1234",
}  # fmt: skip
MPICH = {
    "PMI_RANK": "5", "PMI_SIZE": "8", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "4",
    "MASTER_ADDR": "a", "MASTER_PORT": "1234",
}  # fmt: skip


def without(environ: dict[str, str], *names: str) -> dict[str, str]:
    return {name: value for name, value in environ.items() if name not in names}


def test_each_launcher_is_recognised() -> None:
    meeting = Rendezvous("10.0.0.1", 29500, is_hosted=True, attempt=2)
    assert detect(TORCHRUN) == Rank(5, 8, 1, 4, meeting, "torchrun")
    port = 15000 + (4711 * 7 + 3) % 15000
    assert detect(SLURM) == Rank(5, 7, 1, 3, Rendezvous("gpu07", port), "SLURM")
    assert detect(OPEN_MPI) == Rank(5, 8, 1, 4, Rendezvous("a", 1234), "Open MPI")
    assert detect(MPICH) == Rank(5, 8, 1, 4, Rendezvous("a", 1234), "MPICH")
    assert detect({"WORLD_SIZE": "4", "HOME": "/root"}) is None


def test_an_allocation_without_srun_is_no_launched_rank() -> None:
    salloc = without(SLURM, "SLURM_PROCID", "SLURM_LOCALID", "SLURM_STEP_ID", "SLURM_NODEID")
    assert detect(salloc) is None
    # The interactive shell that salloc starts as a step of its own, of one task.
    shell = {**SLURM, "SLURM_PROCID": "0", "SLURM_LOCALID": "0"}
    assert detect({**shell, "SLURM_STEP_NUM_TASKS": "1"}) is None
    assert detect({**shell, "SLURM_STEP_ID": "4294967290"}) is None
    batch = without(shell, "SLURM_STEP_ID", "SLURM_STEP_NUM_TASKS")
    assert detect({**batch, "ENVIRONMENT": "BATCH"}) is None


def test_a_launcher_inside_slurm_is_found_before_slurm() -> None:
    for inner, name in ((TORCHRUN, "torchrun"), (OPEN_MPI, "Open MPI"), (MPICH, "MPICH")):
        found = detect({**SLURM, "SLURM_PROCID": "1", **inner})
        assert found is not None and (found.launcher, found.rank, found.world) == (name, 5, 8)
    # srun itself speaks PMI: its own numbers, and it knows where ranks meet.
    found = detect({**SLURM, "PMI_RANK": "5", "PMI_SIZE": "7"})
    assert found is not None and found.launcher == "SLURM"


@pytest.mark.parametrize(
    ("nodelist", "host"),
    [
        ("node[007-010,12],x3", "node007"),
        ("node[3,7]", "node3"),
        ("a1,b2", "a1"),
        ("gpu-[1-3]-ib", "gpu-1-ib"),
        ("r[1-2]n[3-4]", "r1n3"),
        ("localhost", "localhost"),
    ],
)
def test_the_first_host_of_slurms_list(nodelist: str, host: str) -> None:
    assert first_host(nodelist) == host


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        (without(TORCHRUN, "WORLD_SIZE"), "started by torchrun, but WORLD_SIZE is not set"),
        ({**TORCHRUN, "RANK": "x"}, "RANK is `x`, which is no number"),
        ({**TORCHRUN, "RANK": "8"}, "this is rank 8 of 8"),
        ({**TORCHRUN, "RANK": "0"}, "rank 0 is number 1 on its host"),
        ({**TORCHRUN, "MASTER_PORT": "70000"}, "MASTER_PORT must lie between 1 and 65535"),
        (without(SLURM, "SLURM_JOB_NODELIST"), "set MASTER_ADDR to the host of rank 0"),
        (without(OPEN_MPI, "MASTER_ADDR"), "set MASTER_ADDR (host of rank 0"),
        (without(MPICH, "MASTER_PORT"), "mpirun -genv MASTER_ADDR HOST -genv MASTER_PORT 29500"),
    ],
)
def test_what_is_missing_or_contradictory_is_said_in_one_line(
    environ: dict[str, str], words: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        detect(environ)
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_another_number_of_ranks_than_the_plan_has_is_an_error_with_both() -> None:
    rank = detect(TORCHRUN)
    assert rank is not None
    check_world(rank, 8)
    with pytest.raises(SettingsError, match=r"needs 4 ranks \(dp=2 tp=2\), but torchrun started 8"):
        check_world(rank, 4, "dp=2 tp=2")


def test_hosts_from_the_command_line() -> None:
    assert Hosts.parse(2, 1, "head:29500") == Hosts(2, 1, Rendezvous("head", 29500))
    assert Hosts.parse(2, 1, "[fe80::1]:29500").rendezvous.host == "fe80::1"
    for nnodes, node_rank, rdzv, words in (
        (2, 2, "head:1", "numbered from 0"),
        (2, 0, "head", "HOST:PORT"),
        (2, 0, "head:0", "HOST:PORT"),
    ):
        with pytest.raises(SettingsError, match=words):
            Hosts.parse(nnodes, node_rank, rdzv)


def test_ranks_share_the_cores_unless_the_user_says_otherwise() -> None:
    assert child_environment(10_000, is_alone=True, environ={})["OMP_NUM_THREADS"] == "1"
    own = {"OMP_NUM_THREADS": "7"}
    assert child_environment(2, is_alone=True, environ=own)["OMP_NUM_THREADS"] == "7"
    assert "GLOO_SOCKET_IFNAME" not in child_environment(2, is_alone=False, environ={})
