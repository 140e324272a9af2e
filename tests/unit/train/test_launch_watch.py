"""The verdict on a job, from invented events: which of several failures was the first."""

from __future__ import annotations

import signal
from dataclasses import asdict

from giantdsl.errors import RuntimeFault, SettingsError
from giantdsl.train.launch.failure import (
    CONSEQUENCE,
    DIED,
    FAULT,
    SETTINGS,
    SILENT,
    STOPPED,
    UNEXPECTED,
    Failure,
    Outcome,
    Progress,
    describe,
    how_it_died,
)
from giantdsl.train.launch.place import Place, here, is_stopped
from giantdsl.train.launch.watch import Watch


def started(world: int, **limits: float) -> Watch:
    """All ranks have said hello at 0 s."""
    watch = Watch(range(world), 0.0, **{"silent_s": 60.0, "start_s": 300.0, **limits})
    for rank in range(world):
        place = Place("a", 100 + rank, "", "1")
        watch.on_message(rank, {"kind": "hello", "place": asdict(place)}, 0.0)
    return watch


def fail(watch: Watch, rank: int, kind: str, text: str, at: float) -> None:
    failure = Failure(rank, kind, text, at=at)
    watch.on_message(rank, {"kind": "error", "failure": failure.as_json()}, at)


def test_the_earliest_failure_wins_and_is_waited_for() -> None:
    watch = started(3)
    fail(watch, 2, UNEXPECTED, "second", 10.02)
    assert watch.verdict(10.1) is None
    fail(watch, 1, UNEXPECTED, "first", 10.01)
    verdict = watch.verdict(10.3)
    assert verdict is not None and verdict.failure is not None
    assert (verdict.failure.rank, verdict.failure.text, verdict.failure.host) == (1, "first", "a")


def test_a_broken_connection_is_no_cause_where_another_is_found() -> None:
    watch = started(2)
    fail(watch, 0, CONSEQUENCE, "Connection closed by peer", 10.0)
    assert watch.verdict(11.0) is None
    watch.add(Failure(1, DIED, "killed", at=11.1), 11.1)
    verdict = watch.verdict(11.4)
    assert verdict is not None and verdict.failure is not None
    assert (verdict.failure.rank, verdict.failure.kind) == (1, DIED)


def test_a_timeout_alone_says_where_all_ranks_stand() -> None:
    watch = started(2)
    beat = {"kind": "beat", "position": "step 4, Forward(1)", "frame": "data.py:7 in read"}
    watch.on_message(1, beat, 9.0)
    fail(watch, 0, CONSEQUENCE, "Timed out waiting", 10.0)
    verdict = watch.verdict(12.1)
    assert verdict is not None and verdict.failure is not None
    assert verdict.failure.details.splitlines()[:2] == [
        "where the ranks stood:",
        "  rank 1 (a): step 4, Forward(1), in data.py:7 in read",
    ]


def test_the_same_wrong_setting_on_all_ranks_is_nobodys_own() -> None:
    watch = started(2)
    fail(watch, 1, SETTINGS, "no such file", 10.0)
    assert watch.verdict(10.5) is None
    fail(watch, 0, SETTINGS, "no such file", 10.6)
    verdict = watch.verdict(10.6)
    assert verdict is not None and verdict.failure is not None
    assert (verdict.failure.headline, verdict.failure.exit_code) == ("no such file", 2)


def test_silent_stopped_and_late_ranks_are_found() -> None:
    watch = started(2)
    for second in range(1, 63):
        watch.on_message(0, {"kind": "beat", "position": "", "frame": ""}, second)
        watch.check(second)
    assert [(f.rank, f.kind) for f in watch.failures] == [(1, SILENT)]

    watch = started(2)
    for second in (1.0, 2.0):
        watch.on_stopped(1, True, second)
    watch.on_stopped(1, False, 3.0)
    watch.on_stopped(1, True, 4.0)
    assert watch.failures == []
    watch.on_stopped(1, True, 6.0)
    assert [(f.rank, f.kind) for f in watch.failures] == [(1, STOPPED)]

    watch = Watch(range(1), 0.0, silent_s=60.0, start_s=3.0)
    watch.check(3.5)
    assert watch.failures[0].text == "did not start within 3 s"


def test_a_watch_that_slept_itself_blames_nobody() -> None:
    watch = started(2)
    watch.check(1.0)
    watch.check(1000.0)
    assert watch.failures == []


def test_an_interrupted_job_has_no_failure() -> None:
    watch = started(2)
    watch.on_message(0, {"kind": "interrupted", "signal": 2}, 1.0)
    fail(watch, 1, CONSEQUENCE, "Connection closed by peer", 1.1)
    verdict = watch.verdict(1.2)
    assert verdict is not None and (verdict.failure, verdict.signal) == (None, 2)

    watch = started(2)
    watch.on_message(0, {"kind": "interrupted", "signal": 15}, 1.0)
    assert watch.verdict(5.0) is None
    hanging = watch.verdict(6.5)
    assert hanging is not None and hanging.signal == 15


def test_a_job_is_done_when_all_ranks_are() -> None:
    watch = started(2)
    watch.on_message(0, {"kind": "done", "value": "x"}, 1.0)
    assert watch.verdict(1.0) is None
    watch.on_message(1, {"kind": "done"}, 2.0)
    verdict = watch.verdict(2.0)
    assert verdict is not None and (verdict.failure, verdict.signal) == (None, None)


# ---- failures as text -------------------------------------------------------------------------


def described(error: BaseException) -> Failure:
    progress = Progress()
    progress.note(stage=1, step=4)
    progress.note(instruction="Backward(2)")
    try:
        raise error
    except BaseException as caught:
        return describe(caught, 3, "b", progress)


def test_an_exception_becomes_rank_host_place_and_cause() -> None:
    found = described(ValueError("wrong\nin two lines"))
    assert found.headline == (
        "rank 3 (host b, stage 1, step 4, Backward(2)): ValueError: wrong in two lines"
    )
    assert (found.kind, found.exit_code) == (UNEXPECTED, 1)
    assert described(RuntimeFault("step 4: no")).kind == FAULT
    assert described(RuntimeFault("step 4: no")).details == ""
    assert described(SettingsError("no")).exit_code == 2


def test_errors_of_connections_are_consequences_also_when_wrapped() -> None:
    closed = RuntimeError("[third_party/gloo/x.cc:1] Connection closed by peer [127.0.0.1]:1")
    assert described(closed).kind == CONSEQUENCE
    wrapped = RuntimeFault("step 4, Recv(1): no answer")
    wrapped.__cause__ = closed
    assert described(wrapped).kind == CONSEQUENCE
    assert described(RuntimeError("shapes differ")).kind == UNEXPECTED


def test_an_exit_code_in_words() -> None:
    assert how_it_died(3) == "the process ended with exit code 3 before its work was done"
    assert how_it_died(-signal.SIGSEGV) == "the process was killed by SIGSEGV"
    assert how_it_died(-60).endswith("signal 60")


def test_exit_codes_of_outcomes() -> None:
    assert Outcome().exit_code == 0
    assert Outcome(signal=2).exit_code == 130
    assert Outcome(failure=Failure(0, SETTINGS, "no")).exit_code == 2
    assert Outcome(failure=Failure(0, DIED, "no")).exit_code == 1


def test_this_process_is_not_stopped_and_others_cannot_be_told() -> None:
    assert not is_stopped(here())
    assert not is_stopped(Place("elsewhere", 1, "", ""))
