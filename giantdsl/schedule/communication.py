"""Sends and receives put into the compute instructions.

A *link* is a pair (source rank, target rank). Messages have no tags to rely on (NCCL has none),
so all messages of a link, activations and gradients alike, are sent and received in one order:
the order in which the source makes them. What an executor has to do for that to hold:

* one communicator, hence one stream, for each link. NCCL keeps one for a pair of ranks, and a
  send to a rank then queues behind a receive from it, which can deadlock. Two process groups are
  enough: one for messages to higher ranks, one for those to lower ranks;
* make these communicators before the first instruction: NCCL makes them at first use and blocks
  both hosts meanwhile;
* start sends and receives where they stand and wait for a receive only in the compute
  instruction that consumes it. Never wait for a send before the end of the step, unless it is
  known to be complete: an activation's is once the same edge's gradient is back.
"""

from __future__ import annotations

from giantdsl.schedule.instructions import (
    Compute,
    ComputeLists,
    Instruction,
    Message,
    Receive,
    RecvActivation,
    RecvGradient,
    Send,
    SendActivation,
    SendGradient,
    incoming,
    outgoing,
    rank_of,
)

Link = tuple[int, int]
"""(source rank, target rank)."""

Programs = tuple[tuple[Instruction, ...], ...]


def link_of(message: Message, num_ranks: int) -> Link:
    return rank_of(message.source, num_ranks), rank_of(message.target, num_ranks)


def add_communication(computes: ComputeLists, num_stages: int, *, ahead: int = 1) -> Programs:
    """The compute instructions with their sends and receives.

    A send follows at once what makes its values. A receive is posted `ahead` compute instructions
    before the one that consumes it starts, so that the message travels while those run; each
    more costs a buffer. It is posted earlier where a later message of its link asks for it; with
    the schedules here and `ahead` = 1 that makes two buffers, or three with several chunks.
    One rank hands everything over and gets no communication.
    """
    num_ranks = len(computes)
    if num_ranks == 1:
        return tuple(tuple(program) for program in computes)
    messages = messages_by_link(computes, num_stages)
    programs = []
    for rank, program in enumerate(computes):
        arriving = [order for (_, target), order in messages.items() if target == rank]
        posted = receive_slots(program, num_stages, arriving, ahead)
        programs.append(with_communication(program, num_stages, posted))
    return tuple(programs)


def messages_by_link(computes: ComputeLists, num_stages: int) -> dict[Link, list[Message]]:
    """The messages of every link in the order in which the source makes them."""
    links: dict[Link, list[Message]] = {}
    for program in computes:
        for instruction in program:
            message = outgoing(instruction, num_stages)
            if message is not None:
                links.setdefault(link_of(message, len(computes)), []).append(message)
    return links


def receive_slots(
    program: tuple[Compute, ...], num_stages: int, arriving: list[list[Message]], ahead: int
) -> list[list[Message]]:
    """For each compute instruction the messages whose receives are posted before it starts.

    `arriving` are the messages of each link to this rank, in the link's order.
    """
    consumer = {incoming(instruction, num_stages): i for i, instruction in enumerate(program)}
    slots: list[list[Message]] = [[] for _ in program]
    for order in arriving:
        at = [max(0, consumer[message] - ahead) for message in order]
        for i in range(len(at) - 1, 0, -1):
            at[i - 1] = min(at[i - 1], at[i])
        for slot, message in zip(at, order, strict=True):
            slots[slot].append(message)
    return slots


def with_communication(
    program: tuple[Compute, ...], num_stages: int, posted: list[list[Message]]
) -> tuple[Instruction, ...]:
    """`posted[i]` are received from before instruction i starts; sends follow what makes them."""
    instructions: list[Instruction] = []
    for compute, messages in zip(program, posted, strict=True):
        instructions += [receive(message) for message in messages]
        instructions.append(compute)
        made = outgoing(compute, num_stages)
        if made is not None:
            instructions.append(send(made))
    return tuple(instructions)


def send(message: Message) -> Send:
    if message.direction == "activation":
        return SendActivation(message.source, message.microbatch)
    return SendGradient(message.source, message.microbatch)


def receive(message: Message) -> Receive:
    if message.direction == "activation":
        return RecvActivation(message.target, message.microbatch)
    return RecvGradient(message.target, message.microbatch)
