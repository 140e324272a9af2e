"""Locks, metrics, settings as JSON, run directories, budgets, batches, signals, the console."""

from __future__ import annotations

import io
import json
import multiprocessing
import signal
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from rich.console import Console

from giantdsl.attrs import Config
from giantdsl.errors import SettingsError
from giantdsl.train.batches import batches_ahead, select_inputs
from giantdsl.train.budget import Budget, make_budget
from giantdsl.train.console import RunConsole, duration
from giantdsl.train.data_protocol import Batch
from giantdsl.train.lock import LOCK_FILE, locked
from giantdsl.train.metrics import MetricsFile, StepRecord, read_metrics
from giantdsl.train.run_dir import RunDir, read_run_files, write_run_files
from giantdsl.train.settings_json import changed_settings, settings_from_json, settings_to_json
from giantdsl.train.signals import stop_on_signals
from tests.unit.train.tiny import Counting, call, tiny_plan, tiny_settings


def record(step: int, **changes: object) -> StepRecord:
    fields: dict[str, object] = {
        "step": step, "loss": 1.5, "losses": {"lm": 1.5}, "tokens": 64 * step, "lr": 1e-3,
        "grad_norm": 2.0, "tokens_per_s": 1000.0, "seconds": 0.1 * step,
    }  # fmt: skip
    return StepRecord(**(fields | changes))  # type: ignore[arg-type]


# ---- lock


def hold(directory: Path, ready: object, leave: object) -> None:
    with locked(directory):
        ready.set()  # type: ignore[attr-defined]
        leave.wait(30)  # type: ignore[attr-defined]


def test_a_directory_that_another_process_runs_in_is_refused_until_that_dies(
    tmp_path: Path,
) -> None:
    context = multiprocessing.get_context("fork")
    ready, leave = context.Event(), context.Event()
    other = context.Process(target=hold, args=(tmp_path, ready, leave))
    other.start()
    try:
        assert ready.wait(30)
        with pytest.raises(SettingsError, match=f"in use by process {other.pid} on "):
            with locked(tmp_path):
                pytest.fail("two runs hold one directory")
    finally:
        other.kill()
        other.join()
    assert json.loads((tmp_path / LOCK_FILE).read_text())["pid"] == other.pid
    with locked(tmp_path):
        pass


def test_two_runs_of_one_process_are_kept_apart_too(tmp_path: Path) -> None:
    with locked(tmp_path):
        for _ in range(2):
            with pytest.raises(SettingsError, match="is in use by process"):
                with locked(tmp_path):
                    pytest.fail("two runs hold one directory")
    with locked(tmp_path):
        pass


def test_a_lock_file_of_an_earlier_boot_or_with_garbage_holds_nobody(tmp_path: Path) -> None:
    import os
    import socket

    for text in (
        "garbage",
        "[1]",
        json.dumps(
            {"pid": os.getppid(), "started": "1", "boot": "0", "host": socket.gethostname()}
        ),
        json.dumps({"pid": 1, "started": "1", "boot": "0", "host": "elsewhere"}),
    ):
        (tmp_path / LOCK_FILE).write_text(text)
        with locked(tmp_path):
            pass


def test_a_run_directory_that_cannot_be_made_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError, match="cannot write run directory .*not a directory"):
        with locked(tmp_path / "file" / "run"):
            pytest.fail("a directory inside a file")


# ---- metrics


def test_metrics_have_one_line_a_step_with_the_promised_keys(tmp_path: Path) -> None:
    metrics = MetricsFile(tmp_path / "m", after_step=0)
    metrics.write(record(1))
    metrics.write(record(2, loss=float("nan"), skipped="loss `lm`", eval={"loss": 2.5}))
    metrics.close()
    first, second = read_metrics(tmp_path / "m")
    assert list(first) == [
        "step", "loss", "loss/lm", "tokens", "lr", "grad_norm", "tokens_per_s", "seconds",
    ]  # fmt: skip
    assert second["loss"] is None
    assert second["skipped"] == "loss `lm`"
    assert second["eval/loss"] == 2.5


def test_metrics_go_on_after_the_restored_step_without_gap_or_double(tmp_path: Path) -> None:
    path = tmp_path / "m"
    metrics = MetricsFile(path, after_step=0)
    for step in range(1, 6):
        metrics.write(record(step))
    metrics.close()
    with open(path, "a", encoding="utf-8") as file:
        file.write('{"step": 6, "lo')
    metrics = MetricsFile(path, after_step=3)
    metrics.write(record(4))
    metrics.close()
    assert [line["step"] for line in read_metrics(path)] == [1, 2, 3, 4]
    assert path.read_text().count("\n") == 4


# ---- settings, run directory


def test_settings_survive_json() -> None:
    settings = tiny_settings(
        data=Config("blend", (), (("web", Config("text", ("a",))), ("ratio", (0.8, 0.2)))),
        freeze=("tok",),
        save=call("every", steps=2, keep=None),
    )
    values = json.loads(json.dumps(settings_to_json(settings)))
    assert settings_from_json(values) == settings
    assert settings_from_json(values | {"of_the_future": 1}) == settings


def test_changes_are_told_in_the_languages_words() -> None:
    before = settings_to_json(tiny_settings())
    now = settings_to_json(tiny_settings(steps=8, optimizer=call("sgd", momentum=0.9)))
    assert changed_settings(before, before) == []
    assert changed_settings(before, now) == [
        "steps: 4 -> 8",
        "optimizer: adamw(betas=[0.9, 0.95], eps=1e-08, decay=0.1) -> sgd(momentum=0.9)",
    ]


def test_a_run_directory_tells_everything_again(tmp_path: Path) -> None:
    plan, settings = tiny_plan(), tiny_settings()
    write_run_files(RunDir(tmp_path), plan, settings, "model tiny\n", tmp_path)
    stored = read_run_files(tmp_path)
    assert stored.plan == plan
    assert stored.settings == settings
    assert stored.base_dir == tmp_path.resolve()
    assert (tmp_path / "spec.giant").read_text() == "model tiny\n"
    assert (tmp_path / "model.py").read_text() == plan.source


def test_what_is_no_run_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="is not a run directory: it has no `run.json`"):
        read_run_files(tmp_path)
    write_run_files(RunDir(tmp_path), tiny_plan(), tiny_settings(), "", tmp_path)
    (tmp_path / "settings.json").write_text("{")
    with pytest.raises(SettingsError, match="damaged run directory"):
        read_run_files(tmp_path)


def test_earlier_results_move_aside_under_the_next_number(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    assert run.set_aside() is None
    for number in (1, 2):
        run.metrics.write_text(str(number))
        assert run.set_aside() == tmp_path / f"previous-{number}"
    assert (tmp_path / "previous-1" / "metrics.jsonl").read_text() == "1"
    assert not run.metrics.exists()


# ---- budget, batches


def test_budgets() -> None:
    assert make_budget(tiny_settings(steps=5), None, 8) == Budget(5, 8, None)
    assert make_budget(tiny_settings(steps=None, tokens=1000), None, 8) == Budget(16, 8, None)
    epochs = make_budget(tiny_settings(steps=None, epochs=1.5), 21, 8)
    assert epochs == Budget(4, 8, 32)
    assert epochs.indices(24) == range(24, 32)
    odd = make_budget(tiny_settings(steps=None, epochs=1), 21, 8)
    assert odd.indices(16) == range(16, 21)
    assert not odd.is_done(3, 20)
    assert odd.is_done(3, 21)
    with pytest.raises(SettingsError, match="needs data with an end"):
        make_budget(tiny_settings(steps=None, epochs=1), None, 8)


def test_batches_come_in_order_ahead_of_time_and_from_any_start() -> None:
    class Noting(Counting):
        def __init__(self) -> None:
            super().__init__()
            self.asked: list[list[int]] = []

        def batch(self, indices: Sequence[int]) -> Batch:
            self.asked.append(list(indices))
            return super().batch(indices)

    source, budget = Noting(), Budget(9, 2, 7)
    with batches_ahead(source, tiny_plan().inputs, budget, 2, torch.device("cpu")) as batches:
        got = [batches.next() for _ in range(3)]
    assert [list(indices) for indices, _ in got] == [[2, 3], [4, 5], [6]]
    assert torch.equal(got[1][1]["tokens"], Counting().batch([4, 5])["tokens"])
    assert source.asked == [[2, 3], [4, 5], [6]]


def test_an_error_of_the_data_arrives_where_the_batch_is_taken() -> None:
    class Broken(Counting):
        def batch(self, indices: Sequence[int]) -> Batch:
            raise SettingsError("file is gone")

    budget = Budget(1, 2, None)
    with batches_ahead(Broken(), tiny_plan().inputs, budget, 0, torch.device("cpu")) as batches:
        with pytest.raises(SettingsError, match="file is gone"):
            batches.next()
    assert not [t for t in threading.enumerate() if t.name.startswith("giantdsl-data")]


def test_inputs_are_chosen_by_name() -> None:
    inputs = tiny_plan().inputs
    batch = Counting().batch([0])
    assert select_inputs({**batch, "other": batch["tokens"]}, inputs).keys() == batch.keys()
    assert select_inputs({"tokens": batch["tokens"]}, inputs).keys() == {"tokens"}
    with pytest.raises(
        SettingsError, match="`forward` needs `tokens`, but the data gives `labels`"
    ):
        select_inputs({"labels": batch["labels"]}, inputs)


# ---- signals, console


def test_the_first_signal_is_a_wish_and_the_second_an_order() -> None:
    said: list[str] = []
    before = signal.getsignal(signal.SIGINT)
    with stop_on_signals(said.append) as request:
        assert request.number is None
        signal.raise_signal(signal.SIGTERM)
        assert request.number == signal.SIGTERM
        assert said[0].startswith("SIGTERM: finishing this step, then saving")
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) == before


def console(terminal: bool, **options: bool) -> tuple[RunConsole, io.StringIO]:
    out = io.StringIO()
    rich = Console(file=out, force_terminal=terminal, width=100, color_system=None)
    shown = RunConsole(rich, memory_bytes=lambda: 2_500_000, **options)
    shown.total_steps = 100
    return shown, out


def test_plain_lines_are_rare_and_the_last_step_is_always_there() -> None:
    shown, out = console(terminal=False)
    for step in range(1, 101):
        shown.step(record(step))
    shown.close()
    lines = out.getvalue().splitlines()
    assert lines[0] == "step 1/100  loss 1.5000  lr 1.00e-03  grad 2.000  1k tokens/s  2.5MB"
    assert lines[-1].startswith("step 100/100  loss 1.5000")
    assert len(lines) == 2


def test_a_terminal_gets_one_line_that_is_rewritten() -> None:
    shown, out = console(terminal=True)
    shown.step(record(1))
    time.sleep(0.21)
    shown.step(record(2))
    shown.say("a message [not markup]")
    shown.close()
    text = out.getvalue()
    assert "step 2/100" in text
    assert "\x1b[2K" in text
    assert "a message [not markup]" in text


def test_quiet_leaves_warnings() -> None:
    shown, out = console(terminal=False, quiet=True)
    shown.step(record(1))
    shown.say("chatter")
    shown.step(record(2, skipped="gradient of `w`"))
    assert out.getvalue() == "step 2 was skipped: gradient of `w` is not finite\n"


def test_durations() -> None:
    assert [duration(s) for s in (3.4, 75, 7500)] == ["3 s", "1 min 15 s", "2 h 05 min"]
