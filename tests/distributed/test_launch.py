"""How ranks start and end. Real processes: their start and their end is what is tested."""

from __future__ import annotations

import re
import signal
import time
from pathlib import Path

from tests.distributed.launching import (
    Ended,
    start_hosts,
    start_local,
    start_open_mpi,
    start_slurm,
    start_torchrun,
    steps,
)


def the_message(ended: Ended) -> str:
    """The one message there is, in time, with nothing else that looks like a report of ours."""
    assert len(ended.errors) == 1, ended.outputs
    assert ended.seconds < 10.0
    return ended.errors[0]


# ---- ranks of our own -------------------------------------------------------------------------


def test_three_ranks_compute_together_and_rank_0_hands_back_the_result(tmp_path: Path) -> None:
    ended = start_local(tmp_path, "add", "5", ranks=3).end()
    assert (ended.code, ended.outputs) == (0, ["value: 15\n"])
    logs = sorted(path.name for path in (tmp_path / "run" / "logs").iterdir())
    assert logs == ["rank-1.log", "rank-2.log"]


def test_the_first_of_two_failures_is_reported_and_the_other_is_not(tmp_path: Path) -> None:
    ended = start_local(tmp_path, "steps", steps(tmp_path, "raise", 1, later=0)).end()
    assert ended.code == 1
    message = the_message(ended)
    assert re.fullmatch(
        r"error: rank 1 \(host \S+, stage 1, step 4, Forward\(2\)\): ValueError: the first failure",
        message,
    )
    (output,) = ended.outputs
    assert output.count("Traceback") == 1
    assert "of no interest" not in output
    # Rank 1 wrote to its log, of which the end is shown; rank 0 to the terminal.
    assert "rank 0 speaks\n" in output and "\n  rank 1 speaks\n" in output


def test_a_wrong_setting_on_one_rank_is_exit_code_2_without_traceback(tmp_path: Path) -> None:
    ended = start_local(tmp_path, "steps", steps(tmp_path, "settings", 1)).end()
    assert ended.code == 2
    assert the_message(ended).endswith("): `train.data` names no file")
    assert "Traceback" not in ended.outputs[0]


def test_a_killed_rank_is_named_with_its_signal_and_what_it_did(tmp_path: Path) -> None:
    ended = start_local(tmp_path, "steps", steps(tmp_path, "kill", 0)).end()
    assert ended.code == 1
    message = the_message(ended)
    assert "rank 0 (host" in message and "stage 0, step 4, Forward(2)" in message
    assert "was killed by SIGKILL" in message


def test_a_rank_that_leaves_without_a_word_is_named_with_its_exit_code(tmp_path: Path) -> None:
    ended = start_local(tmp_path, "steps", steps(tmp_path, "exit", 1)).end()
    assert ended.code == 1
    assert "rank 1 (host" in the_message(ended)
    assert "ended with exit code 3 before its work was done" in the_message(ended)


def test_a_stopped_rank_is_found_within_5_s(tmp_path: Path) -> None:
    ended = start_local(tmp_path, "steps", steps(tmp_path, "stop", 1)).end()
    assert ended.code == 1
    assert re.search(r"rank 1 .*process \d+ is stopped \(SIGSTOP\)", the_message(ended))
    assert ended.seconds < 6.5


def test_a_rank_whose_interpreter_hangs_is_found_by_its_silence(tmp_path: Path) -> None:
    argument = steps(tmp_path, "hold the interpreter", 1)
    ended = start_local(tmp_path, "steps", argument).end()
    assert ended.code == 1
    assert re.search(r"rank 1 .*step 4.*no sign of life for 4 s", the_message(ended))


def test_a_collective_that_waits_in_vain_shows_where_all_ranks_stand(tmp_path: Path) -> None:
    ended = start_local(tmp_path, "steps", steps(tmp_path, "sleep", 1)).end()
    assert ended.code == 1
    assert "rank 0 (host" in the_message(ended) and "Timed out" in the_message(ended)
    stood = ended.outputs[0].split("where the ranks stood:\n")[1].splitlines()[0]
    assert re.fullmatch(
        r"  rank 1 \(\S+\): stage 1, step 4, Forward\(2\), in launch_jobs\.py:\d+ in misbehave",
        stood,
    )


def test_mismatched_collectives_name_both_ranks(tmp_path: Path) -> None:
    ended = start_local(tmp_path, "steps", steps(tmp_path, "mismatch", 1)).end()
    assert ended.code == 1
    message = the_message(ended)
    assert "rank 0 calls allreduce of [1] long" in message
    assert "rank 1 calls allreduce of [3] double" in message


def test_ctrl_c_is_passed_on_once_and_the_job_saves(tmp_path: Path) -> None:
    started = start_local(tmp_path, "steps", steps(tmp_path, "save on signal", 9))
    started.wait_for("started-0", "started-1")
    started.processes[0].send_signal(signal.SIGINT)
    ended = started.end(since=time.time())
    assert ended.code == 128 + signal.SIGINT
    assert "value: Saved(step=" in ended.outputs[0]
    assert {p.name for p in tmp_path.glob("saved-*")} == {"saved-0", "saved-1"}
    assert ended.seconds < 10.0


def test_sigterm_ends_a_job_that_does_not_catch_it(tmp_path: Path) -> None:
    started = start_local(tmp_path, "steps", steps(tmp_path, "nothing", 9))
    started.wait_for("started-0", "started-1")
    started.processes[0].send_signal(signal.SIGTERM)
    ended = started.end(since=time.time())
    assert (ended.code, ended.errors) == (128 + signal.SIGTERM, [])


def test_ranks_do_not_outlive_the_process_that_started_them(tmp_path: Path) -> None:
    started = start_local(tmp_path, "steps", steps(tmp_path, "save on signal", 9))
    started.wait_for("started-0", "started-1")
    started.processes[0].kill()
    # `end` looks for processes that are left.
    assert started.end(since=time.time()).code == -signal.SIGKILL
    assert not list(tmp_path.glob("saved-*"))


# ---- ranks of a launcher ----------------------------------------------------------------------


def test_under_torchrun_a_failure_is_reported_once(tmp_path: Path) -> None:
    ended = start_torchrun(tmp_path, "steps", steps(tmp_path, "raise", 0)).end()
    assert ended.code == 1
    assert "rank 0 (host" in the_message(ended)
    assert "ValueError: the first failure" in the_message(ended)


def test_under_slurm_a_killed_rank_is_named(tmp_path: Path) -> None:
    ended = start_slurm(tmp_path, "steps", steps(tmp_path, "kill", 1)).end()
    assert ended.codes == [1, -signal.SIGKILL]
    assert "rank 1 (host" in the_message(ended)
    assert "ended without a word" in the_message(ended)


def test_under_mpirun_the_loss_of_rank_0_is_reported_by_another(tmp_path: Path) -> None:
    ended = start_open_mpi(tmp_path, "steps", steps(tmp_path, "kill", 0)).end()
    assert ended.codes == [-signal.SIGKILL, 1]
    assert "rank 0 (host" in the_message(ended)
    assert "ended without a word" in the_message(ended)


def test_two_launchers_make_one_job(tmp_path: Path) -> None:
    ended = start_hosts(tmp_path, "add", "5").end()
    assert (ended.codes, ended.outputs) == ([0, 0], ["value: 30\n", ""])


def test_on_many_hosts_one_reports_and_the_others_say_why_they_stop(tmp_path: Path) -> None:
    ended = start_hosts(tmp_path, "steps", steps(tmp_path, "raise", 3)).end()
    assert ended.codes == [1, 1]
    assert "rank 3 (host" in the_message(ended)
    assert "stopped, because of rank 3 (host" in ended.outputs[0]
    assert ended.errors[0] in ended.outputs[1]


def test_another_plan_on_one_rank_is_one_error_that_names_them(tmp_path: Path) -> None:
    ended = start_slurm(tmp_path, "plan that differs", "1").end()
    assert ended.codes == [2, 2]
    assert the_message(ended) == (
        "error: the plan differs between ranks: plan 0 on rank 0, plan 1 on rank 1"
    )
