"""When sends are known to be complete. Pure: it follows from the instructions of all ranks.

A send keeps its buffer until it is waited for, and waiting before the receiver is there would
stall the pipeline or lock it up. What comes back tells: a rank that sends something has done all
that stands before it, and what it consumed there has arrived.
"""

from __future__ import annotations

from collections.abc import Mapping

from giantdsl.schedule.communication import Link, link_of
from giantdsl.schedule.instructions import (
    Compute,
    Instruction,
    Message,
    Receive,
    Schedule,
    incoming,
    rank_of,
)

MIN_WINDOW = 2
"""One message on its way while the next is made."""


def known_complete(schedule: Schedule, rank: int) -> Mapping[Message, tuple[Message, ...]]:
    """For each message to `rank`, which of its own sends have arrived once that one is here.

    Each send is named once, at the first message that tells.
    """
    found: dict[Message, tuple[Message, ...]] = {}
    for other, program in enumerate(schedule.ranks):
        if other == rank:
            continue
        consumed: list[Message] = []
        for instruction in program:
            if isinstance(instruction, Compute):
                needs = incoming(instruction, schedule.num_stages)
                if needs is not None and rank_of(needs.source, schedule.num_ranks) == rank:
                    consumed.append(needs)
            elif not isinstance(instruction, Receive):
                message = instruction.message
                if rank_of(message.target, schedule.num_ranks) == rank:
                    found[message] = tuple(consumed)
                    consumed = []
    return found


def send_window(schedule: Schedule) -> int:
    """How many sends of a link may be under way where nothing comes back, as in evaluation.

    A rank that has more waits for the oldest one; with this many no ranks wait for each other.
    """
    window = MIN_WINDOW
    while not _Bounded(schedule, window).finishes():
        window *= 2
    return window


class _Bounded:
    """The ranks' walk through their instructions, where a send waits for an older one."""

    def __init__(self, schedule: Schedule, window: int) -> None:
        self.schedule, self.window = schedule, window
        self.positions = [0] * schedule.num_ranks
        self.sent: dict[Link, list[Message]] = {}
        self.made: set[Message] = set()
        self.posted: set[Message] = set()

    def finishes(self) -> bool:
        moved = True
        while moved:
            moved = True in [self._advance(rank) for rank in range(self.schedule.num_ranks)]
        lengths = [len(program) for program in self.schedule.ranks]
        return self.positions == lengths

    def _advance(self, rank: int) -> bool:
        program, before = self.schedule.ranks[rank], self.positions[rank]
        while self.positions[rank] < len(program) and self._can_do(program[self.positions[rank]]):
            self.positions[rank] += 1
        return self.positions[rank] > before

    def _can_do(self, instruction: Instruction) -> bool:
        if isinstance(instruction, Compute):
            needs = incoming(instruction, self.schedule.num_stages)
            alone = self.schedule.num_ranks == 1
            return needs is None or alone or (needs in self.made and needs in self.posted)
        message = instruction.message
        if isinstance(instruction, Receive):
            self.posted.add(message)
            return True
        queue = self.sent.setdefault(link_of(message, self.schedule.num_ranks), [])
        if message not in self.made:
            self.made.add(message)
            queue.append(message)
        older = len(queue) - self.window - 1
        return older < 0 or queue[older] in self.posted
