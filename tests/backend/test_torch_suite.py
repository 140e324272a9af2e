"""A part of PyTorch's own suite of torch.distributed over giant, on three ranks.

All of it takes some minutes: torch_suite_results.md has what it gave, and how to run it.
"""

import json
import subprocess
import sys
from pathlib import Path

from giantdsl.testing.ranks import RankPool
from tests.backend.torch_suite import KNOWN

ROOT = Path(__file__).parents[2]
CHOSEN = (
    "test_Backend_enum_class",
    "test_DistributedDataParallelCPU",
    "test_accumulate_gradients_no_sync",
    "test_all_gather_coalesced_group",
    "test_all_gather_object_subgroup",
    "test_all_reduce_coalesced_full_group_max",
    "test_all_reduce_group_product",
    "test_all_reduce_sum_async",
    "test_all_reduce_sum_complex",
    "test_all_to_all_group",
    "test_all_to_all_single_unequal_split_complex",
    "test_barrier_timeout_group",
    "test_batch_isend_irecv_gloo_tags",
    "test_broadcast_full_group",
    "test_ddp_logging_data_cpu",
    "test_destroy_full_group",
    "test_gather_checks",
    "test_get_future",
    "test_isend_torch_profiler",
    "test_monitored_barrier_gloo_subgroup",
    "test_monitored_barrier_wait_all_ranks",
    "test_reduce_group_min",
    "test_scatter_complex",
    "test_send_recv_any_source",
    "test_send_recv_with_tag",
    "test_sparse_all_reduce_sum",
)


def test_pytorchs_own_tests_pass(giant_ranks: RankPool, tmp_path: Path) -> None:
    """`giant_ranks` only so that the backend is built, or this skipped."""
    out = tmp_path / "results.json"
    run = subprocess.run(
        [sys.executable, "-m", "tests.backend.torch_suite", "--out", out, "--only", *CHOSEN],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert out.exists(), run.stderr[-4000:]
    results = json.loads(out.read_text(encoding="utf-8"))
    expected = {name: "known" if name in KNOWN else "passed" for name in CHOSEN}
    assert {name: status for name, (status, _) in results.items()} == expected, run.stderr[-4000:]
