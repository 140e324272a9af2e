"""TensorBoard event files, where the package is installed."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from giantdsl.errors import SettingsError
from giantdsl.train.metrics import StepRecord


class TensorBoard:
    """One event file a start of the run, under `directory`."""

    def __init__(self, directory: Path, *, after_step: int) -> None:
        """Events past `after_step` of earlier starts are hidden from the viewer.

        Raises SettingsError where the `tensorboard` package is missing.
        """
        require_tensorboard()
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(
            str(directory), purge_step=after_step + 1 if after_step else None
        )

    def write(self, record: StepRecord) -> None:
        scalars = {
            "train/loss": record.loss,
            **{f"train/loss_{name}": value for name, value in record.losses.items()},
            "train/lr": record.lr,
            "train/grad_norm": record.grad_norm,
            "train/tokens_per_s": record.tokens_per_s,
            **{f"eval/{name}": value for name, value in record.eval.items()},
        }
        for name, value in scalars.items():
            self._writer.add_scalar(name, value, record.step)

    def sync(self) -> None:
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


def require_tensorboard() -> None:
    if importlib.util.find_spec("tensorboard") is None:
        raise SettingsError(
            "`train.log` has `tensorboard`, but the package is not installed; type "
            "`pip install 'giantdsl[tensorboard]'` or take it out of `train.log`"
        )
