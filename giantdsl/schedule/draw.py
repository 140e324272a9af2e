"""A schedule as text: a row for each rank, a column for each slot of time."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Sequence

from giantdsl.schedule.instructions import (
    Backward,
    BackwardInput,
    BackwardWeight,
    Compute,
    Forward,
    Schedule,
)
from giantdsl.schedule.simulate import EQUAL_COSTS, Costs, Simulation, Span, simulate

LETTERS: dict[type[Compute], tuple[str, str]] = {
    Forward: ("F", "forward"),
    Backward: ("B", "backward"),
    BackwardInput: ("b", "backward of inputs"),
    BackwardWeight: ("w", "backward of weights"),
}

Slots = list[str | None]
"""By slot the label of what starts there, "" where it goes on, None where the rank idles."""


def draw_schedule(
    schedule: Schedule,
    *,
    costs: Costs | Sequence[Costs] = EQUAL_COSTS,
    latency: float = 0,
    width: int = 100,
    max_blocks: int = 6,
) -> str:
    """The picture, its legend above and its figures below, in lines of at most `width`.

    `F3` is the forward of microbatch 3; `F3a` that of chunk a where ranks have several stages.
    What takes longer than a slot goes on in dashes, idle slots are dots. Slots that do not fit
    go below in further blocks; of more than `max_blocks` (at least 2) the middle is left out,
    with a note. Sends and receives are not drawn. Raises what `simulate` raises.
    """
    simulation = simulate(schedule, costs, latency)
    slot = min((s.end - s.start for s in _computes(simulation) if s.end > s.start), default=1)
    rows = [
        _slots(spans, slot, schedule, math.floor(simulation.total / slot + 0.5))
        for spans in simulation.timeline
    ]
    return "\n".join(
        [
            *_legend(schedule, simulation, slot, width),
            *_blocks(rows, width, max_blocks),
            *_figures(simulation, width),
        ]
    )


def _computes(simulation: Simulation) -> Iterable[Span]:
    return (s for spans in simulation.timeline for s in spans if isinstance(s.instruction, Compute))


def _slots(spans: Sequence[Span], slot: float, schedule: Schedule, num_slots: int) -> Slots:
    """One row. `slot` is the shortest duration, so that rounding leaves at least one to each."""
    row: Slots = [None] * num_slots
    for span in spans:
        start, end = math.floor(span.start / slot + 0.5), math.floor(span.end / slot + 0.5)
        if isinstance(span.instruction, Compute) and end > start:
            row[start:end] = [_label(span.instruction, schedule), *[""] * (end - start - 1)]
    return row


def _label(instruction: Compute, schedule: Schedule) -> str:
    chunk = ""
    if schedule.num_stages > schedule.num_ranks:
        chunk = _chunk_name(instruction.stage // schedule.num_ranks)
    return f"{LETTERS[type(instruction)][0]}{instruction.microbatch}{chunk}"


def _chunk_name(chunk: int) -> str:
    """a, b, … z, aa, ab, …"""
    more, letter = divmod(chunk, 26)
    return (_chunk_name(more - 1) if more else "") + chr(ord("a") + letter)


def _legend(schedule: Schedule, simulation: Simulation, slot: float, width: int) -> list[str]:
    kinds = {type(span.instruction) for span in _computes(simulation)}
    title = f"{schedule.name}: {_count(schedule.num_ranks, 'rank')}, "
    title += f"{_count(schedule.num_stages, 'stage')}, "
    title += _count(schedule.num_microbatches, "microbatch")
    words = [f"{letter} {word}" for kind, (letter, word) in LETTERS.items() if kind in kinds]
    words += ["number: microbatch", f"column: {slot:g} of time"]
    num_chunks = schedule.num_stages // schedule.num_ranks
    for chunk in range(num_chunks) if num_chunks > 1 else ():
        first = chunk * schedule.num_ranks
        last = first + schedule.num_ranks - 1
        stages = f"stage {first}" if first == last else f"stages {first} to {last}"
        words.append(f"{'' if chunk else 'last letter '}{_chunk_name(chunk)}: {stages}")
    return [title, *textwrap.wrap(", ".join(words), width)]


def _blocks(rows: Sequence[Slots], width: int, max_blocks: int) -> list[str]:
    """The rows, cut into blocks of as many slots as fit in a line."""
    cell = 1 + max(len(label) for row in rows for label in row if label)
    head = 1 + len(str(len(rows) - 1))
    num_slots = len(rows[0])
    each = max(1, (width - head + 1) // cell)  # the last cell needs no gap
    starts = list(range(0, num_slots, each))
    left_out = range(0)
    if len(starts) > max_blocks:
        left_out = range(max_blocks - 1, len(starts) - 1)
    lines: list[str] = []
    for block, start in enumerate(starts):
        stop = min(start + each, num_slots)
        if block in left_out:
            if block == left_out[0]:
                lines.append(f"(columns {start} to {starts[left_out.stop] - 1} are left out)")
            continue
        if len(starts) > 1:
            lines.append(f"columns {start} to {stop - 1}")
        for rank, row in enumerate(rows):
            lines.append(f"{rank:<{head}}{_cells(row, start, stop, cell)}".rstrip())
    return lines


def _cells(row: Slots, start: int, stop: int, cell: int) -> str:
    """The slots start..stop of a row, `cell` characters each."""
    text = ""
    for i in range(start, stop):
        label = row[i]
        if label is None:
            text += ".".ljust(cell)
        else:
            goes_on = i + 1 < len(row) and row[i + 1] == ""
            text += label.ljust(cell, "-") if goes_on else (label or "-" * (cell - 1)).ljust(cell)
    return text


def _figures(simulation: Simulation, width: int) -> list[str]:
    figures = [
        f"bubble {simulation.bubble:.1%}",
        f"time {simulation.total:g}",
        f"activations kept at most, by rank: {_numbers(simulation.peak_activations)}",
        f"receive buffers: {_numbers(simulation.peak_receive_buffers)}",
    ]
    return textwrap.wrap("; ".join(figures), width)


def _numbers(counts: Sequence[int]) -> str:
    return " ".join(map(str, counts))


def _count(number: int, noun: str) -> str:
    plural = f"{noun}es" if noun.endswith("ch") else f"{noun}s"
    return f"{number} {noun if number == 1 else plural}"
