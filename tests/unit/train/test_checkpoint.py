"""Checkpoints on disk: whole or not there (invariants 17 and 18)."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError

from giantdsl.errors import SettingsError
from giantdsl.train import checkpoint as module
from giantdsl.train.checkpoint import (
    TrainState,
    latest_checkpoint,
    open_checkpoint,
    remove_leftovers,
    restore,
    save_checkpoint,
)

MODEL = {"a.weight": torch.arange(6.0).view(2, 3), "b": torch.tensor(1.5)}
OPTIMIZER = {"exp_avg/a.weight": torch.ones(2, 3, dtype=torch.float64)}


def state_at(step: int) -> TrainState:
    return TrainState(
        step=step, samples=8 * step, tokens=64 * step, seconds=1.5, seed=7,
        fingerprint="f", settings={"batch": 8},
    )  # fmt: skip


def save(root: Path, step: int, **options: Any) -> Path:
    return save_checkpoint(root, state_at(step), MODEL, OPTIMIZER, **options)


def names(root: Path) -> list[str]:
    return sorted(os.listdir(root))


def test_what_was_saved_comes_back_bit_for_bit(tmp_path: Path) -> None:
    path = save(tmp_path, 100)
    assert path == tmp_path / "step-00000100"
    assert names(path) == ["complete", "model.safetensors", "optimizer.safetensors", "state.json"]
    found = open_checkpoint(path)
    assert found.state == state_at(100)
    for wanted, tensors in ((MODEL, found.model_tensors()), (OPTIMIZER, found.optimizer_tensors())):
        assert tensors.keys() == wanted.keys()
        for name, tensor in wanted.items():
            assert tensor.dtype == tensors[name].dtype
            assert torch.equal(tensor, tensors[name])


def test_a_checkpoint_is_the_same_bytes_each_time(tmp_path: Path) -> None:
    first, second = save(tmp_path / "one", 3), save(tmp_path / "two", 3)
    for name in names(first):
        assert (first / name).read_bytes() == (second / name).read_bytes()


def truncate(path: Path) -> None:
    file = path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-4])


def flip(name: str) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        data = bytearray((path / name).read_bytes())
        data[-3] ^= 1
        (path / name).write_bytes(data)

    return damage


def change_step(path: Path) -> None:
    file = path / "state.json"
    file.write_text(file.read_text().replace('"step": 2', '"step": 3'))


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (truncate, "`model.safetensors` has .* bytes instead of"),
        (flip("model.safetensors"), "`model.safetensors` does not have the contents"),
        (flip("optimizer.safetensors"), "`optimizer.safetensors` does not have the contents"),
        (change_step, "`state.json` is missing or was changed"),
        (lambda p: (p / "complete").unlink(), "`complete` is missing"),
        (lambda p: (p / "complete").write_bytes(b""), "`complete` is missing or unreadable"),
        (lambda p: (p / "state.json").unlink(), "`state.json` is missing"),
        (lambda p: (p / "optimizer.safetensors").unlink(), "`optimizer.safetensors` is missing"),
    ],
)
def test_a_damaged_checkpoint_is_passed_over_and_says_why(
    tmp_path: Path, damage: Callable[[Path], None], why: str
) -> None:
    save(tmp_path, 1)
    damage(save(tmp_path, 2))
    with pytest.raises(SettingsError, match=why):
        open_checkpoint(tmp_path / "step-00000002")
    heard: list[str] = []
    found = latest_checkpoint(tmp_path, heard.append)
    assert found is not None
    assert found.state.step == 1
    assert len(heard) == 1
    assert heard[0].startswith(f"passed over: checkpoint {tmp_path / 'step-00000002'}")
    save(tmp_path, 2)
    found = latest_checkpoint(tmp_path, heard.append)
    assert found is not None
    assert found.state.step == 2


def test_steps_are_numbers_not_words(tmp_path: Path) -> None:
    for step in (9, 10, 100_000_000):
        save(tmp_path, step)
    found = latest_checkpoint(tmp_path, print)
    assert found is not None
    assert found.state.step == 100_000_000


def test_no_directory_has_no_checkpoint(tmp_path: Path) -> None:
    assert latest_checkpoint(tmp_path / "missing", print) is None


def test_a_format_of_the_future_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FORMAT", 9)
    path = save(tmp_path, 1)
    monkeypatch.undo()
    with pytest.raises(SettingsError, match="has format 9; this giantdsl reads 1"):
        open_checkpoint(path)


def test_the_newest_are_kept(tmp_path: Path) -> None:
    for step in range(1, 6):
        save(tmp_path, step, keep=2)
    assert names(tmp_path) == ["step-00000004", "step-00000005"]


def test_a_damaged_one_does_not_count_among_the_kept(tmp_path: Path) -> None:
    save(tmp_path, 1)
    (save(tmp_path, 2) / "complete").unlink()
    save(tmp_path, 3, keep=2)
    assert names(tmp_path) == ["step-00000001", "step-00000002", "step-00000003"]


def test_a_save_that_was_stopped_leaves_the_earlier_ones_and_the_next_succeeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path, 1)
    for moment in ("_save_tensors", "digest", "write_json", "sync_directory"):

        def interrupt(*args: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(module, moment, interrupt)
        with pytest.raises(KeyboardInterrupt):
            save(tmp_path, 2)
        monkeypatch.undo()
        assert names(tmp_path) == ["step-00000001"]
    save(tmp_path, 2)
    assert names(tmp_path) == ["step-00000001", "step-00000002"]


def test_leftovers_of_a_killed_save_go_away(tmp_path: Path) -> None:
    save(tmp_path, 1)
    (tmp_path / ".step-00000002.new").mkdir()
    (tmp_path / ".step-00000002.new" / "model.safetensors").write_bytes(b"half")
    (tmp_path / ".step-00000001.old").mkdir()
    assert latest_checkpoint(tmp_path, print) is not None
    remove_leftovers(tmp_path)
    assert names(tmp_path) == ["step-00000001"]


@pytest.mark.parametrize(
    ("failure", "advice"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "the disk is full; make room"),
        (
            SafetensorError("IoError: No space left on device (os error 28)"),
            "the disk is full; make room",
        ),
        (OSError(errno.EACCES, "Permission denied"), "no permission to write there"),
        (SafetensorError("something else"), "something else"),
    ],
)
def test_a_disk_that_refuses_is_one_clear_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: Exception, advice: str
) -> None:
    save(tmp_path, 1)

    def refuse(*args: object, **options: object) -> None:
        raise failure

    monkeypatch.setattr(module, "save_file", refuse)
    with pytest.raises(SettingsError, match=advice) as caught:
        save(tmp_path, 2)
    assert "\n" not in str(caught.value)
    assert names(tmp_path) == ["step-00000001"]


def test_restore_names_the_tensor_that_does_not_fit_and_changes_nothing() -> None:
    def fresh() -> dict[str, torch.Tensor]:
        return {"layer.1": torch.zeros(2), "layer.10": torch.zeros(2)}

    full = {"layer.1": torch.ones(2), "layer.10": torch.full((2,), 2.0)}
    wanted = fresh()
    restore(wanted, full, "model")
    assert torch.equal(wanted["layer.10"], full["layer.10"])
    cases = [
        ({"layer.1": full["layer.1"]}, "model has no tensor `layer.10`"),
        (full | {"layer.100": torch.ones(2)}, "model has tensor `layer.100`, which"),
        (full | {"layer.10": torch.ones(3)}, "tensor `layer.10` of model is 3 of float32; .* 2 of"),
        (full | {"layer.10": torch.ones(2).double()}, "`layer.10` of model is 2 of float64"),
    ]
    for found, message in cases:
        wanted = fresh()
        with pytest.raises(SettingsError, match=message):
            restore(wanted, found, "model")
        assert not wanted["layer.1"].any()


def test_the_state_is_readable(tmp_path: Path) -> None:
    described = json.loads((save(tmp_path, 5) / "state.json").read_text())
    assert described["format"] == 1
    assert described["step"] == 5
    assert described["files"]["model.safetensors"]["size_bytes"] > 0
