"""A schedule run on paper: when each instruction starts and ends, and whether all of them do.

The model: a rank runs one compute instruction at a time, in its order. Sends and receives take
no time of the rank; each link (see `communication`) carries one message at a time, in order, from
the moment its values are made and its receive is posted and the message before it has arrived.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from giantdsl.schedule.buffers import (
    peak_activations,
    peak_activations_of_stages,
    peak_receive_buffers,
)
from giantdsl.schedule.check import check_schedule
from giantdsl.schedule.communication import Link, link_of
from giantdsl.schedule.instructions import (
    Backward,
    BackwardInput,
    Compute,
    Forward,
    Instruction,
    Message,
    Receive,
    Schedule,
    ScheduleError,
    incoming,
)


@dataclass(frozen=True, slots=True)
class Costs:
    """The time of each instruction for one microbatch on one stage, in any one unit."""

    forward: float = 1
    backward: float = 2
    backward_input: float = 1
    backward_weight: float = 1

    def of(self, instruction: Compute) -> float:
        match instruction:
            case Forward():
                return self.forward
            case Backward():
                return self.backward
            case BackwardInput():
                return self.backward_input
            case _:
                return self.backward_weight


EQUAL_COSTS = Costs()


@dataclass(frozen=True, slots=True)
class Span:
    """When an instruction ran. Of a send: values ready to arrival; of a receive: posted to arrival."""

    instruction: Instruction
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Simulation:
    """What a step costs. `timeline` and all tuples of counts are by rank, or by stage as named.

    `total` is from the first start to the last end, `busy` what each rank computes of it.
    """

    timeline: tuple[tuple[Span, ...], ...]
    total: float
    busy: tuple[float, ...]
    peak_activations: tuple[int, ...]
    peak_activations_of_stages: tuple[int, ...]
    peak_receive_buffers: tuple[int, ...]

    @property
    def bubble(self) -> float:
        """The idle share of all ranks' time, 0 to 1."""
        whole = self.total * len(self.busy)
        return 1 - sum(self.busy) / whole if whole else 0.0


class Deadlock(ScheduleError):
    """Ranks wait for each other. `stuck` are (rank, the instruction it cannot start)."""

    def __init__(self, stuck: tuple[tuple[int, Compute], ...], num_stages: int) -> None:
        self.stuck = stuck
        lines = [
            f"rank {rank} waits at {instruction} for {incoming(instruction, num_stages)}"
            for rank, instruction in stuck
        ]
        super().__init__("\n".join(["deadlock:", *lines]))


def simulate(
    schedule: Schedule, costs: Costs | Sequence[Costs] = EQUAL_COSTS, latency: float = 0
) -> Simulation:
    """Run it on paper. `costs` are one for all stages or one for each.

    `latency` is the time of one message on its link, in the unit of the costs. Raises
    ScheduleError where the instructions are no schedule (all that `check_schedule` finds), and
    Deadlock, which is one, where ranks wait for each other.
    """
    problems = check_schedule(schedule)
    if problems:
        raise ScheduleError("\n".join(problems))
    by_stage = (costs,) * schedule.num_stages if isinstance(costs, Costs) else tuple(costs)
    if len(by_stage) != schedule.num_stages:
        raise ValueError(f"costs of {len(by_stage)} stages for {schedule.num_stages}")
    timeline = _Run(schedule, by_stage, latency).run()
    computes = [[s for s in spans if isinstance(s.instruction, Compute)] for spans in timeline]
    return Simulation(
        timeline=timeline,
        total=max(span.end for spans in computes for span in spans),
        busy=tuple(sum(span.end - span.start for span in spans) for spans in computes),
        peak_activations=peak_activations(schedule),
        peak_activations_of_stages=peak_activations_of_stages(schedule),
        peak_receive_buffers=peak_receive_buffers(schedule),
    )


class _Run:
    """The state while ranks advance: their clocks and positions, and where each message is."""

    def __init__(self, schedule: Schedule, costs: Sequence[Costs], latency: float) -> None:
        self.schedule, self.costs, self.latency = schedule, costs, latency
        self.clock: list[float] = [0] * schedule.num_ranks
        self.started: list[list[tuple[Instruction, float]]] = [[] for _ in schedule.ranks]
        self.ends: dict[Compute, float] = {}
        self.made: dict[Message, float] = {}
        self.posted: dict[Message, float] = {}
        self.arrived: dict[Message, float] = {}
        self.queues = _link_queues(schedule)
        self.link_free: dict[Link, float] = {}

    def run(self) -> tuple[tuple[Span, ...], ...]:
        ranks = range(self.schedule.num_ranks)
        moved = True
        while moved:
            moved = True in [self.advance(rank) for rank in ranks]
        stuck = [(rank, self.next(rank)) for rank in ranks]
        waiting = tuple((rank, i) for rank, i in stuck if isinstance(i, Compute))
        if waiting:
            raise Deadlock(waiting, self.schedule.num_stages)
        return tuple(
            tuple(Span(i, start, self.end(i)) for i, start in started) for started in self.started
        )

    def end(self, instruction: Instruction) -> float:
        if isinstance(instruction, Compute):
            return self.ends[instruction]
        return self.arrived[instruction.message]

    def next(self, rank: int) -> Instruction | None:
        program, position = self.schedule.ranks[rank], len(self.started[rank])
        return program[position] if position < len(program) else None

    def advance(self, rank: int) -> bool:
        """Run this rank until it has to wait; whether it ran anything."""
        before = len(self.started[rank])
        while (instruction := self.next(rank)) is not None:
            if isinstance(instruction, Compute):
                if not self.compute(rank, instruction):
                    break
            else:
                times = self.posted if isinstance(instruction, Receive) else self.made
                times[instruction.message] = self.clock[rank]
                self.started[rank].append((instruction, self.clock[rank]))
                self.deliver(link_of(instruction.message, self.schedule.num_ranks))
        return len(self.started[rank]) > before

    def compute(self, rank: int, instruction: Compute) -> bool:
        """Run it if its message has arrived. On a single rank the order alone is enough."""
        start = self.clock[rank]
        needs = incoming(instruction, self.schedule.num_stages)
        if needs is not None and self.schedule.num_ranks > 1:
            if needs not in self.arrived:
                return False
            start = max(start, self.arrived[needs])
        self.clock[rank] = start + self.costs[instruction.stage].of(instruction)
        self.ends[instruction] = self.clock[rank]
        self.started[rank].append((instruction, start))
        return True

    def deliver(self, link: Link) -> None:
        """Move the messages at the head of the link whose two ends are ready."""
        queue = self.queues[link]
        while queue and queue[-1] in self.made and queue[-1] in self.posted:
            message = queue.pop()
            ready = max(self.made[message], self.posted[message], self.link_free.get(link, 0))
            self.link_free[link] = self.arrived[message] = ready + self.latency


def _link_queues(schedule: Schedule) -> dict[Link, list[Message]]:
    """The messages of each link, the next one last."""
    queues: dict[Link, list[Message]] = {}
    for program in schedule.ranks:
        for instruction in program:
            if isinstance(instruction, Receive):
                message = instruction.message
                queues.setdefault(link_of(message, schedule.num_ranks), []).append(message)
    for queue in queues.values():
        queue.reverse()
    return queues
