"""The stages of a plan side by side: what each has, reads, receives and sends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from giantdsl.passes.cut_stages import StageProgram

_WIDTH = 100


@dataclass(frozen=True, slots=True)
class StageRow:
    """A stage in names. A value is received from the stage before and sent to the next one."""

    stage: int
    layers: str
    reads: tuple[str, ...]
    receives: tuple[str, ...]
    recomputes: tuple[str, ...]
    ties: tuple[str, ...]
    sends: tuple[str, ...]
    returns: tuple[str, ...]
    losses: tuple[str, ...]


def stage_rows(stages: Sequence[StageProgram]) -> tuple[StageRow, ...]:
    return tuple(
        StageRow(
            stage=stage.index,
            layers=stage.units,
            reads=stage.inputs,
            receives=tuple(crossing.name for crossing in stage.receives),
            recomputes=stage.recomputed,
            ties=stage.tied,
            sends=stage.sends,
            returns=stage.outputs,
            losses=stage.losses,
        )
        for stage in stages
    )


def stage_table(stages: Sequence[StageProgram]) -> str:
    """The rows as text: a paragraph a stage, nothing said of what a stage has not."""
    return "\n".join(line for row in stage_rows(stages) for line in _paragraph(row))


def _paragraph(row: StageRow) -> list[str]:
    lines = [f"stage {row.stage}: {row.layers}"]
    for name in ("reads", "receives", "recomputes", "ties", "sends", "returns", "losses"):
        values: tuple[str, ...] = getattr(row, name)
        if values:
            lines += _wrapped(f"  {name:<11}", values)
    return lines


def _wrapped(head: str, words: Sequence[str]) -> list[str]:
    lines = [head]
    for i, word in enumerate(words):
        text = word + ("," if i < len(words) - 1 else "")
        is_full = len(lines[-1]) + 1 + len(text) > _WIDTH and lines[-1].strip()
        if is_full and len(lines[-1]) > len(head):
            lines.append(" " * len(head))
        lines[-1] += f" {text}"
    return lines
