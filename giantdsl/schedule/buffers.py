"""How much a rank holds at a time. It follows from the order alone, whatever things cost."""

from __future__ import annotations

from giantdsl.schedule.instructions import (
    Backward,
    BackwardWeight,
    Compute,
    Forward,
    Message,
    Receive,
    Schedule,
    incoming,
)


def peak_activations(schedule: Schedule) -> tuple[int, ...]:
    """By rank, the most (stage, microbatch) whose activations are kept at one time.

    They are kept from the Forward to the end of the Backward, or of the BackwardWeight: what
    weight gradients need is freed with them only. Nothing is kept where there is no backward.
    """
    return tuple(peak for peak, _ in map(_activations, _compute_lists(schedule)))


def peak_activations_of_stages(schedule: Schedule) -> tuple[int, ...]:
    """By stage, the most microbatches whose activations are kept at one time."""
    peaks = [0] * schedule.num_stages
    for _, by_stage in map(_activations, _compute_lists(schedule)):
        for stage, peak in by_stage.items():
            peaks[stage] = peak
    return tuple(peaks)


def peak_receive_buffers(schedule: Schedule) -> tuple[int, ...]:
    """By rank, the most messages posted whose consumer has not ended yet."""
    peaks = []
    for program in schedule.ranks:
        waiting: set[Message | None] = set()
        peak = 0
        for instruction in program:
            if isinstance(instruction, Receive):
                waiting.add(instruction.message)
                peak = max(peak, len(waiting))
            elif isinstance(instruction, Compute):
                waiting.discard(incoming(instruction, schedule.num_stages))
        peaks.append(peak)
    return tuple(peaks)


def _compute_lists(schedule: Schedule) -> list[list[Compute]]:
    return [[i for i in program if isinstance(i, Compute)] for program in schedule.ranks]


def _activations(program: list[Compute]) -> tuple[int, dict[int, int]]:
    """The peak of the rank and those of its stages."""
    ends = (Backward, BackwardWeight)
    freed = {(i.stage, i.microbatch) for i in program if isinstance(i, ends)}
    peak, peaks = 0, {i.stage: 0 for i in program}
    live = dict.fromkeys(peaks, 0)
    for instruction in program:
        stage = instruction.stage
        if isinstance(instruction, Forward) and (stage, instruction.microbatch) in freed:
            live[stage] += 1
            peaks[stage] = max(peaks[stage], live[stage])
            peak = max(peak, sum(live.values()))
        elif isinstance(instruction, ends):
            live[stage] -= 1
    return peak, peaks
