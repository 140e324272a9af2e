"""A schedule by its name in the language."""

from __future__ import annotations

from collections.abc import Callable

from giantdsl.schedule.communication import add_communication
from giantdsl.schedule.gpipe import forward_only, gpipe
from giantdsl.schedule.instructions import ComputeLists, Schedule
from giantdsl.schedule.interleaved import interleaved
from giantdsl.schedule.zero_bubble import zero_bubble

Generator = Callable[[int, int, int], ComputeLists]

SCHEDULES: dict[str, Generator] = {
    "gpipe": gpipe,
    "1f1b": interleaved,  # which is 1f1b itself where each rank has one stage
    "interleaved": interleaved,
    "zero_bubble": zero_bubble,
}


def build_schedule(
    name: str, num_ranks: int, num_stages: int, num_microbatches: int, *, train: bool = True
) -> Schedule:
    """The instructions of every pipeline rank for one step.

    All schedules take any number of microbatches and any number of stages on a rank; 1f1b with
    several is the same as interleaved. With `train` off there are forward passes only, alike for
    all of them. Raises ValueError for a name or numbers that make no schedule.
    """
    if name not in SCHEDULES:
        raise ValueError(f"no pipeline schedule `{name}`; there are {', '.join(SCHEDULES)}")
    if num_ranks < 1 or num_microbatches < 1:
        raise ValueError(
            f"a schedule needs a rank and a microbatch, got {num_ranks} and {num_microbatches}"
        )
    if num_stages < 1 or num_stages % num_ranks:
        raise ValueError(
            f"{num_stages} stages on {num_ranks} pipeline ranks: the number of stages must be "
            f"a multiple of the number of ranks"
        )
    generate = SCHEDULES[name] if train else forward_only
    computes = generate(num_ranks, num_stages, num_microbatches)
    programs = add_communication(computes, num_stages)
    return Schedule(name, num_stages, num_microbatches, programs)
