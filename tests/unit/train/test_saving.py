"""A checkpoint is of the step that it names, whatever training does while it is written."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from giantdsl.errors import SettingsError
from giantdsl.train import saving
from giantdsl.train.checkpoint import TrainState, latest_checkpoint, save_checkpoint
from giantdsl.train.loop import run
from giantdsl.train.metrics import read_metrics
from giantdsl.train.saving import CheckpointWriter, Snapshot
from tests.unit.train.tiny import call, tensors_of, tiny_job

LIMIT_S = 20.0
SNAPSHOT = Snapshot({"w": torch.arange(4.0)}, {"exp_avg/w": torch.zeros(4)})


def state_at(step: int) -> TrainState:
    return TrainState(
        step=step, samples=step, tokens=step, seconds=0.0, seed=1, fingerprint="f", settings={}
    )


def test_start_returns_before_the_checkpoint_is_there(tmp_path: Path) -> None:
    go_on = threading.Event()
    writer = CheckpointWriter(tmp_path, keep=None, before=lambda: assert_in_time(go_on))
    writer.start(state_at(1), SNAPSHOT)
    assert writer.is_busy and writer.last is None and list(tmp_path.iterdir()) == []
    go_on.set()
    writer.finish()
    assert writer.last == tmp_path / "step-00000001"
    found = latest_checkpoint(tmp_path, print)
    assert found is not None and found.state == state_at(1)


def test_one_at_a_time_and_the_newest_stay(tmp_path: Path) -> None:
    writer = CheckpointWriter(tmp_path, keep=2, before=lambda: None)
    for step in (1, 2, 3):
        writer.start(state_at(step), SNAPSHOT)
    writer.finish()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step-00000002", "step-00000003"]


def test_what_the_disk_refuses_is_raised_once_by_who_asks(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no directory")
    writer = CheckpointWriter(tmp_path / "file", keep=None, before=lambda: None)
    writer.start(state_at(1), SNAPSHOT)
    with pytest.raises(SettingsError, match="cannot write checkpoint"):
        writer.finish()
    writer.check()
    assert writer.last is None


def test_without_async_start_returns_when_it_is_there(tmp_path: Path) -> None:
    writer = CheckpointWriter(tmp_path, keep=None, before=lambda: None, is_async=False)
    writer.start(state_at(1), SNAPSHOT)
    assert not writer.is_busy and latest_checkpoint(tmp_path, print) is not None


def test_steps_go_on_and_do_not_reach_into_the_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkpoint of step 2 is held back until step 4 is recorded."""
    every_two = call("every", steps=2, keep=None)
    run(tiny_job(tmp_path / "waits", steps=5, save=call("every", steps=2, **{"async": False})))
    seen = []

    def late(root: Path, state: TrainState, *tensors: Any, **options: Any) -> Path:
        if state.step == 2:
            waiting = threading.Event()
            for _ in range(int(LIMIT_S / 0.01)):
                seen[:] = [row["step"] for row in read_metrics(tmp_path / "goes" / "metrics.jsonl")]
                if 4 in seen or waiting.wait(0.01):
                    break
        return save_checkpoint(root, state, *tensors, **options)

    monkeypatch.setattr(saving, "save_checkpoint", late)
    result = run(tiny_job(tmp_path / "goes", steps=5, save=every_two))
    assert 4 in seen, "training waited for the checkpoint"
    assert result.checkpoint == tmp_path / "goes" / "checkpoints" / "step-00000005"
    for step in (2, 4, 5):
        goes, waits = tensors_of(tmp_path / "goes", step), tensors_of(tmp_path / "waits", step)
        assert goes.keys() == waits.keys()
        for name in goes:
            assert torch.equal(goes[name], waits[name]), (step, name)


def test_a_disk_that_refuses_ends_the_run_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the next step, and the checkpoints before stay."""

    def refuse(root: Path, state: TrainState, *tensors: Any, **options: Any) -> Path:
        if state.step == 2:
            raise SettingsError("cannot write checkpoint: the disk is full")
        return save_checkpoint(root, state, *tensors, **options)

    monkeypatch.setattr(saving, "save_checkpoint", refuse)
    with pytest.raises(SettingsError, match="the disk is full"):
        run(tiny_job(tmp_path / "run", steps=6, save=call("every", steps=1, keep=None)))
    found = latest_checkpoint(tmp_path / "run" / "checkpoints", print)
    assert found is not None and found.state.step == 1
    assert len(read_metrics(tmp_path / "run" / "metrics.jsonl")) < 6


def assert_in_time(event: threading.Event) -> None:
    assert event.wait(LIMIT_S)
