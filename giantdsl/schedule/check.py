"""What is wrong with a schedule, read off its instructions without running them.

Deadlock is not seen here: it depends on how the ranks' orders mesh; `simulate` finds it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from giantdsl.schedule.communication import Link, link_of
from giantdsl.schedule.instructions import (
    Backward,
    BackwardInput,
    BackwardWeight,
    Compute,
    Forward,
    Instruction,
    Message,
    Receive,
    RecvActivation,
    RecvGradient,
    Schedule,
    SendActivation,
    SendGradient,
    incoming,
    outgoing,
    rank_of,
)


def check_schedule(schedule: Schedule) -> tuple[str, ...]:
    """Everything that is wrong, one line each; empty for a good schedule.

    Each stage computes each microbatch once, on its rank, after its inputs are there: forward
    before backward, input gradients before weight gradients, receive before use, send after
    making. Each message has two ends, and a link's messages one order on both.
    """
    return (
        *check_complete(schedule),
        *(
            problem
            for rank, program in enumerate(schedule.ranks)
            for problem in check_rank(schedule, rank, program)
        ),
        *check_links(schedule),
    )


def check_complete(schedule: Schedule) -> Iterator[str]:
    """Each (stage, microbatch) has one Forward, and all of them one backward or none has."""
    counts = Counter(
        instruction
        for program in schedule.ranks
        for instruction in program
        if isinstance(instruction, Compute)
    )
    trains = any(not isinstance(instruction, Forward) for instruction in counts)
    for stage in range(schedule.num_stages):
        for microbatch in range(schedule.num_microbatches):
            forward, whole, inputs, weights = (
                counts.pop(kind(stage, microbatch), 0)
                for kind in (Forward, Backward, BackwardInput, BackwardWeight)
            )
            if forward != 1:
                yield f"{Forward(stage, microbatch)} is there {forward} times"
            if trains and (whole, inputs, weights) not in ((1, 0, 0), (0, 1, 1)):
                yield (
                    f"stage {stage}, microbatch {microbatch} needs one Backward, or one "
                    f"BackwardInput and one BackwardWeight; there are {whole}, {inputs}, {weights}"
                )
    for instruction in counts:
        yield f"{instruction} is of no stage or no microbatch of this schedule"


def check_rank(schedule: Schedule, rank: int, program: tuple[Instruction, ...]) -> Iterator[str]:
    """The order within one rank."""
    done: set[Compute | Message] = set()
    received: set[Message] = set()
    for instruction in program:
        where = f"rank {rank}: {instruction}"
        if rank_of(instruction.stage, schedule.num_ranks) != rank:
            yield f"{where} belongs to rank {rank_of(instruction.stage, schedule.num_ranks)}"
        if isinstance(instruction, Receive):
            received.add(instruction.message)
        elif isinstance(instruction, SendActivation | SendGradient):
            if instruction.message not in done:
                yield f"{where} comes before its values are made"
        else:
            here = done if schedule.num_ranks == 1 else received
            needs = incoming(instruction, schedule.num_stages)
            if needs is not None and needs not in here:
                yield f"{where} comes before {needs}"
            before = predecessors(instruction)
            if before and not done.intersection(before):
                yield f"{where} comes before {' or '.join(map(str, before))}"
            done.add(instruction)
            made = outgoing(instruction, schedule.num_stages)
            if made is not None:
                done.add(made)


def predecessors(instruction: Compute) -> tuple[Compute, ...]:
    """Of these, on the same stage, one has to come before; empty for a Forward."""
    match instruction:
        case Backward(stage, microbatch) | BackwardInput(stage, microbatch):
            return (Forward(stage, microbatch),)
        case BackwardWeight(stage, microbatch):
            return (BackwardInput(stage, microbatch),)
    return ()


def check_links(schedule: Schedule) -> Iterator[str]:
    """Both ends of each link: every message of every edge, in one order."""
    sent: dict[Link, list[Message]] = {}
    received: dict[Link, list[Message]] = {}
    for program in schedule.ranks:
        for instruction in program:
            if isinstance(instruction, Compute):
                continue
            is_receive = isinstance(instruction, RecvActivation | RecvGradient)
            link = link_of(instruction.message, schedule.num_ranks)
            (received if is_receive else sent).setdefault(link, []).append(instruction.message)
    for link in sorted(sent.keys() | received.keys()):
        name = f"rank {link[0]} to rank {link[1]}"
        out, arriving = sent.get(link, []), received.get(link, [])
        for message in (Counter(out) - Counter(arriving)).elements():
            yield f"{name}: {message} is sent and not received"
        for message in (Counter(arriving) - Counter(out)).elements():
            yield f"{name}: {message} is received and not sent"
        repeated = [message for message, count in Counter(out).items() if count > 1]
        for message in repeated:
            yield f"{name}: {message} is sent more than once"
        if out != arriving and Counter(out) == Counter(arriving):
            yield f"{name}: messages are received in another order than they are sent in"
