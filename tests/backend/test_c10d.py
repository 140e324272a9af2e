"""torch.distributed over the giant backend, on four ranks, and what builds on it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from giantdsl.testing.ranks import RankPool
from tests.backend import jobs

QUIET = [
    jobs.reductions, jobs.averages_and_factors, jobs.moves, jobs.all_to_all, jobs.not_contiguous,
    jobs.sparse, jobs.order_and_futures, jobs.coalesced, jobs.messages, jobs.subgroups,
    jobs.many_threads, jobs.ddp, jobs.fsdp2, jobs.zero_redundancy, jobs.dtensors, jobs.functional,
    jobs.pipelining,
]  # fmt: skip


@pytest.mark.parametrize("job", QUIET, ids=lambda job: job.__name__)
def test_it_does_what_torch_says(giant_ranks: RankPool, job: Callable[..., Any]) -> None:
    giant_ranks.run(job, timeout_s=120)


def test_checkpoints_are_saved_and_loaded(giant_ranks: RankPool, tmp_path: Path) -> None:
    giant_ranks.run(jobs.checkpoints, str(tmp_path / "saved"), timeout_s=120)


def test_a_destroyed_group_leaves_no_thread_and_no_descriptor(giant_ranks: RankPool) -> None:
    for threads, fds, threads_after, fds_after in giant_ranks.run(jobs.leaves_nothing):
        assert threads_after <= threads and fds_after <= fds


def test_calls_that_do_not_match_fail_everywhere(giant_ranks: RankPool) -> None:
    for said in giant_ranks.run(jobs.mismatch):
        assert "do not match" in said and "rank 2" in said and "all_reduce of 11 float32" in said


def test_a_late_rank_is_named(giant_ranks: RankPool) -> None:
    for said in giant_ranks.run(jobs.late)[:3]:
        assert "rank 3 did not arrive in time" in said and "all_reduce of 10 float32" in said


def test_bad_arguments_are_refused_in_words(giant_ranks: RankPool) -> None:
    for said in giant_ranks.run(jobs.bad_arguments):
        assert "no error" not in said, said


def test_monitored_barrier_names_who_is_missing(giant_ranks: RankPool) -> None:
    said = giant_ranks.run(jobs.monitored)
    assert "Rank 2 failed to pass monitoredBarrier in 1000 ms" in said[0]
    assert all("successfully reached monitoredBarrier" in said[rank] for rank in (1, 3))


def test_counters_and_records_tell_what_was_done(giant_ranks: RankPool) -> None:
    for counters, states in giant_ranks.run(jobs.observed):
        assert counters["calls"] >= 3 and counters["bytes_sent_between_hosts"] == 0
        assert len(states) >= 3 and len(set(states)) == 1
