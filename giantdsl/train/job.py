"""What goes into a run and what comes out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from giantdsl.plan import Plan
from giantdsl.settings.values import TrainSettings

if TYPE_CHECKING:
    from rich.console import Console
    from torch import nn

    from giantdsl.train.data_protocol import Source


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainJob:
    """One call of `train`.

    `base_dir` is where relative paths of the spec begin. `resume` is `auto`, `never` or a
    directory: a checkpoint, or a run whose newest is taken. `resolved_spec` is the text that is
    kept as `spec.giant`. `device` None means this machine's accelerator, or the CPU.
    `initialize` fills the fresh module, where `train.init` names other weights than the spec's.
    `source` and `eval_source` replace what `train.data` would build. `again` is the command
    that goes on after an interruption.
    """

    plan: Plan
    settings: TrainSettings
    run_dir: Path
    base_dir: Path
    resume: str = "auto"
    resolved_spec: str = ""
    device: str | None = None
    quiet: bool = False
    console: Console | None = None
    initialize: Callable[[nn.Module], None] | None = None
    source: Source | None = None
    eval_source: Source | None = None
    again: str = "the same command again"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """How a run ended. `loss` is the last step's, None where no step ran.

    `signal` is what interrupted it, None where it came to its end. `eval` is by name, as in the
    metrics, of the last evaluation; empty without one.
    """

    steps: int
    loss: float | None
    eval: dict[str, float]
    checkpoint: Path | None
    signal: int | None

    @property
    def interrupted(self) -> bool:
        return self.signal is not None

    @property
    def eval_loss(self) -> float | None:
        return self.eval.get("loss")

    @property
    def exit_code(self) -> int:
        """As a shell counts: 128 and the signal, 0 without one."""
        return 0 if self.signal is None else 128 + self.signal
