"""Checkpoints that reach the disk while training goes on.

What a checkpoint holds is copied between two steps; a thread of the first process writes the copy.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from giantdsl.train.checkpoint import TrainState, save_checkpoint

_NICENESS = 10


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Whole tensors on the CPU, by logical name: weights (masters) and buffers, optimizer state.

    Nobody writes to them any more, unless they were asked for without a copy.
    """

    model: Mapping[str, Tensor]
    optimizer: Mapping[str, Tensor]


class CheckpointWriter:
    """Writes checkpoints under `root`, one at a time, and keeps the `keep` newest (None: all).

    `before` is called first, by the thread: what has to be on the disk before the checkpoint is.
    `is_async` False: `start` returns when the checkpoint is complete.
    """

    def __init__(
        self, root: Path, *, keep: int | None, before: Callable[[], None], is_async: bool = True
    ) -> None:
        self.last: Path | None = None
        """The newest that is complete."""
        self._root, self._keep, self._before, self._is_async = root, keep, before, is_async
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    @property
    def is_busy(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def start(self, state: TrainState, snapshot: Snapshot) -> None:
        """Begin to write, after what is being written. Raises what that met, as `finish` does."""
        self.finish()
        if not self._is_async:
            self._write(state, snapshot)
            return
        self._thread = threading.Thread(
            target=self._work, args=(state, snapshot), name="checkpoint", daemon=True
        )
        self._thread.start()

    def check(self) -> None:
        """Raises SettingsError where the disk refused a checkpoint; earlier ones are untouched."""
        if not self.is_busy:
            self.finish()

    def finish(self) -> None:
        """Wait until nothing is being written. Raises as `check`, once."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _work(self, state: TrainState, snapshot: Snapshot) -> None:
        if sys.platform == "linux":
            # There a thread has a niceness of its own: training has the cores first.
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
        try:
            self._write(state, snapshot)
        except BaseException as error:  # whoever waits for the thread raises it
            self._error = error

    def _write(self, state: TrainState, snapshot: Snapshot) -> None:
        self._before()
        self.last = save_checkpoint(
            self._root, state, snapshot.model, snapshot.optimizer, keep=self._keep
        )
