"""What a pipeline rank does, one instruction after the other. Plain data.

Stage s lives on rank s mod num_ranks. Edge k lies between the stages k and k + 1; activations
cross it upwards and gradients downwards, so a message is known by (edge, microbatch, direction)
and its two ends find each other by that key, `instruction.message`. Where both stages live on the
same rank (one rank only) the values are handed over and there is no message.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Direction = Literal["activation", "gradient"]


class ScheduleError(Exception):
    """A schedule that cannot run. The generators here never make one: it is a bug of ours."""


@dataclass(frozen=True, slots=True)
class Message:
    """What crosses `edge` for one microbatch: all values of the cut together.

    A direction in which a cut has no values (no gradient, say) still has its message here; that
    it is empty is for the executor to see, alike on both ends.
    """

    edge: int
    microbatch: int
    direction: Direction

    @property
    def source(self) -> int:
        """The stage that makes the values."""
        return self.edge if self.direction == "activation" else self.edge + 1

    @property
    def target(self) -> int:
        """The stage that consumes them."""
        return self.edge + 1 if self.direction == "activation" else self.edge


@dataclass(frozen=True, slots=True)
class Forward:
    """The stage's forward pass, its terms of the losses included."""

    stage: int
    microbatch: int


@dataclass(frozen=True, slots=True)
class Backward:
    """The whole backward pass: gradients of the stage's inputs and of its weights."""

    stage: int
    microbatch: int


@dataclass(frozen=True, slots=True)
class BackwardInput:
    """The gradients of the stage's inputs only: all that the stage before waits for."""

    stage: int
    microbatch: int


@dataclass(frozen=True, slots=True)
class BackwardWeight:
    """The gradients of the weights, after `BackwardInput` of the same microbatch."""

    stage: int
    microbatch: int


@dataclass(frozen=True, slots=True)
class SendActivation:
    """`stage` made the values; they go to stage + 1. Starts the send and does not wait for it."""

    stage: int
    microbatch: int

    @property
    def message(self) -> Message:
        return Message(self.stage, self.microbatch, "activation")


@dataclass(frozen=True, slots=True)
class RecvActivation:
    """`stage` consumes the values; they come from stage - 1. Posts the receive; its Forward waits."""

    stage: int
    microbatch: int

    @property
    def message(self) -> Message:
        return Message(self.stage - 1, self.microbatch, "activation")


@dataclass(frozen=True, slots=True)
class SendGradient:
    """`stage` made the gradients of its inputs; they go to stage - 1. Does not wait."""

    stage: int
    microbatch: int

    @property
    def message(self) -> Message:
        return Message(self.stage - 1, self.microbatch, "gradient")


@dataclass(frozen=True, slots=True)
class RecvGradient:
    """`stage` consumes the gradients of what it sent to stage + 1. Posts; its backward waits."""

    stage: int
    microbatch: int

    @property
    def message(self) -> Message:
        return Message(self.stage, self.microbatch, "gradient")


Compute = Forward | Backward | BackwardInput | BackwardWeight
Send = SendActivation | SendGradient
Receive = RecvActivation | RecvGradient
Instruction = Compute | Send | Receive

ComputeLists = tuple[tuple[Compute, ...], ...]
"""The compute instructions of every rank, in order."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """A step of a pipeline: for each pipeline rank its instructions in order."""

    name: str
    num_stages: int
    num_microbatches: int
    ranks: tuple[tuple[Instruction, ...], ...]

    @property
    def num_ranks(self) -> int:
        return len(self.ranks)


def rank_of(stage: int, num_ranks: int) -> int:
    """The pipeline rank on which a stage lives."""
    return stage % num_ranks


def incoming(instruction: Compute, num_stages: int) -> Message | None:
    """What an instruction needs of another stage; None where it needs nothing."""
    stage, microbatch = instruction.stage, instruction.microbatch
    if isinstance(instruction, Forward) and stage > 0:
        return Message(stage - 1, microbatch, "activation")
    if isinstance(instruction, Backward | BackwardInput) and stage < num_stages - 1:
        return Message(stage, microbatch, "gradient")
    return None


def outgoing(instruction: Compute, num_stages: int) -> Message | None:
    """What an instruction makes for another stage; None where it makes nothing."""
    stage, microbatch = instruction.stage, instruction.microbatch
    if isinstance(instruction, Forward) and stage < num_stages - 1:
        return Message(stage, microbatch, "activation")
    if isinstance(instruction, Backward | BackwardInput) and stage > 0:
        return Message(stage - 1, microbatch, "gradient")
    return None
