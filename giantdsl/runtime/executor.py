"""Walks a pipeline rank's instructions: forward, backward, sends, receives."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from giantdsl.errors import GiantError, InternalError, RuntimeFault
from giantdsl.plan import ParallelPlan, StageInfo, ValueInfo
from giantdsl.runtime.axes import Axes
from giantdsl.runtime.completion import known_complete, send_window
from giantdsl.runtime.groups import Groups
from giantdsl.runtime.links import Links
from giantdsl.runtime.messages import Arrival, Item, Layout, Messenger
from giantdsl.runtime.microbatch import Extent, extent_of, local_shape
from giantdsl.runtime.stage import Kept, StageRunner, Values, WeightJobs
from giantdsl.schedule.build import build_schedule
from giantdsl.schedule.instructions import (
    Backward,
    BackwardInput,
    BackwardWeight,
    Forward,
    Instruction,
    Message,
    RecvActivation,
    RecvGradient,
    Schedule,
    ScheduleError,
    SendActivation,
    SendGradient,
)
from giantdsl.schedule.simulate import simulate

Part = Mapping[str, Tensor]
Shares = Mapping[str, float]
Key = tuple[int, int]
"""(stage, microbatch)."""

_DTYPES = {"int": torch.int64, "bool": torch.bool}
_MAX_LAYOUTS = 4096
"""Sequence lengths may differ from step to step for ever."""
_WORDS: Mapping[type, str] = {
    Forward: "forward",
    Backward: "backward",
    BackwardInput: "backward of inputs",
    BackwardWeight: "backward of weights",
    SendActivation: "sending activations",
    RecvActivation: "receiving activations",
    SendGradient: "sending gradients",
    RecvGradient: "receiving gradients",
}


@dataclass(frozen=True, slots=True)
class _Program:
    """This rank's part of a schedule.

    `last` are the instructions that bring the last gradients of their stage. `complete` is
    `known_complete`; `window` is `send_window` where nothing comes back, else None.
    """

    instructions: tuple[Instruction, ...]
    last: frozenset[Instruction]
    complete: Mapping[Message, tuple[Message, ...]]
    window: int | None


@dataclass(slots=True)
class _Batch:
    """One step: its microbatches, and what is under way.

    `activations` and `gradients` are values for a stage, or from it on their way out, by the
    stage that will use them.
    """

    parts: Sequence[Part]
    noise: Sequence[Tensor | None]
    shares: Sequence[Shares]
    train: bool
    extents: Sequence[Extent]
    program: _Program
    kept: dict[Key, Kept] = field(default_factory=dict)
    activations: dict[Key, Values] = field(default_factory=dict)
    gradients: dict[Key, Values] = field(default_factory=dict)
    arrivals: dict[Message, Arrival] = field(default_factory=dict)
    later: dict[Key, WeightJobs] = field(default_factory=dict)
    losses: Values = field(default_factory=dict)


class Executor:
    """Runs batches through the stages of one rank; every rank of the job runs the same batches.

    `stages` are this rank's, by index; all share `axes`. `dtype` is that of activations.
    `on_last_backward(stage)` is called before the backward pass that brings the last gradients of
    a stage's weights in a step, `on_stage_done(stage)` after it. `note(stage, words)` hears of
    every instruction before it begins; without it, the words go into the message of what fails.

    All ranks make it at the same time: it connects the pipeline ranks.
    """

    def __init__(
        self,
        plan: ParallelPlan,
        groups: Groups,
        stages: Mapping[int, nn.Module],
        axes: Axes,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | None = None,
        on_last_backward: Callable[[int], None] | None = None,
        on_stage_done: Callable[[int], None] | None = None,
        note: Callable[[int, str], None] | None = None,
        timeout_s: float = 600.0,
    ) -> None:
        self._plan, self._groups, self._axes, self._dtype = plan, groups, axes, dtype
        self._on_last_backward, self._on_stage_done = on_last_backward, on_stage_done
        self._note = note
        device = device or torch.device("cpu")
        infos = {stage.index: stage for stage in plan.stages}
        split = plan.schedule == "zero_bubble"
        self._stages = {
            index: StageRunner(plan, infos[index], module, dtype=dtype, device=device, split=split)
            for index, module in stages.items()
        }
        self._crossing = {
            edge: _crossing(plan, infos[edge], infos[edge + 1]) for edge in range(len(infos) - 1)
        }
        links = Links.make(groups, len(infos), device, timeout_s=timeout_s)
        self._messenger = Messenger(links, device)
        self._schedules: dict[tuple[int, bool], Schedule] = {}
        self._programs: dict[tuple[int, bool], _Program] = {}
        self._layouts: dict[tuple[int, str, Extent], Layout] = {}
        self._actions = self._make_actions()
        self._live = 0
        self.timeline: list[tuple[Instruction, float, float]] | None = None
        """Start and end in seconds of every instruction since it was set to []; None: nothing."""

    @property
    def live_activations(self) -> int:
        """How many (stage, microbatch) this rank keeps activations of, as `Simulation` counts."""
        return self._live

    def schedule(self, num_microbatches: int, train: bool) -> Schedule:
        """The instructions of a step, simulated before they are first used.

        Raises InternalError for a schedule that would not finish.
        """
        key = num_microbatches, train
        if key not in self._schedules:
            pp = self._groups.pp.size
            name, stages = self._plan.schedule, len(self._plan.stages)
            made = build_schedule(name, pp, stages, num_microbatches, train=train)
            try:
                simulate(made)
            except ScheduleError as error:
                raise InternalError(f"schedule `{name}` does not finish: {error}") from error
            self._schedules[key] = made
        return self._schedules[key]

    def run(
        self,
        parts: Sequence[Part],
        noise: Sequence[Tensor | None],
        shares: Sequence[Shares],
        *,
        train: bool = True,
    ) -> dict[str, Tensor]:
        """What this rank's stages bring to each loss: share times term, over all microbatches.

        A microbatch's share of a loss is by its name, or under "". With `train`, gradients of
        those sums are added to the parameters. Raises RuntimeFault naming rank, stage and
        instruction where one fails.
        """
        program = self._program(len(parts), train)
        extents = [extent_of(part, self._plan.model.inputs) for part in parts]
        batch = _Batch(parts, noise, shares, train, extents, program)
        self._live = 0
        if len(self._layouts) > _MAX_LAYOUTS:
            self._layouts.clear()
        with torch.set_grad_enabled(train):
            for instruction in program.instructions:
                self._perform(batch, instruction)
            self._messenger.finish()
        return batch.losses

    def _program(self, num_microbatches: int, train: bool) -> _Program:
        key = num_microbatches, train
        if key not in self._programs:
            schedule = self.schedule(num_microbatches, train)
            rank = self._groups.pp.rank
            self._programs[key] = _Program(
                instructions=schedule.ranks[rank],
                last=_last_backwards(schedule.ranks[rank]),
                complete=known_complete(schedule, rank),
                window=None if train else send_window(schedule),
            )
        return self._programs[key]

    # ---- one instruction ------------------------------------------------------------------

    def _make_actions(self) -> dict[type, Callable[[_Batch, int, int], None]]:
        return {
            Forward: self._forward,
            Backward: self._backward,
            BackwardInput: self._backward_input,
            BackwardWeight: self._backward_weight,
            SendActivation: self._send_activation,
            SendGradient: self._send_gradient,
            RecvActivation: self._receive_activation,
            RecvGradient: self._receive_gradient,
        }

    def _perform(self, batch: _Batch, instruction: Instruction) -> None:
        stage = instruction.stage
        started = time.perf_counter()
        if self._note is not None:
            self._note(stage, words_of(instruction))
        is_last = instruction in batch.program.last
        try:
            if is_last and self._on_last_backward is not None:
                self._on_last_backward(stage)
            self._actions[type(instruction)](batch, stage, instruction.microbatch)
            if is_last and self._on_stage_done is not None:
                self._on_stage_done(stage)
        except Exception as error:
            if self._note is None:
                self._raise_located(error, instruction)
            raise
        if self.timeline is not None:
            self.timeline.append((instruction, started, time.perf_counter()))

    def _raise_located(self, error: Exception, instruction: Instruction) -> None:
        """A RuntimeFault saying where it was; errors that somebody else has to mend stay."""
        where = f"rank {self._groups.rank}, stage {instruction.stage}, {words_of(instruction)}"
        if isinstance(error, GiantError) and not isinstance(error, RuntimeFault):
            error.add_note(where)
            return
        text = str(error).strip().split("\n")[0] or type(error).__name__
        raise RuntimeFault(f"{where}: {text}") from error

    # ---- computing ------------------------------------------------------------------------

    def _forward(self, batch: _Batch, stage: int, microbatch: int) -> None:
        received = self._incoming(batch, stage, microbatch)
        self._resize(batch.extents[microbatch])
        passed = self._stages[stage].forward(
            batch.parts[microbatch],
            received,
            batch.noise[microbatch],
            batch.shares[microbatch],
            train=batch.train,
        )
        for name, value in passed.losses.items():
            batch.losses[name] = batch.losses[name] + value if name in batch.losses else value
        if stage in self._crossing:
            batch.activations[(stage + 1, microbatch)] = passed.sent
        if passed.kept is not None:
            self._live += 1
            batch.kept[(stage, microbatch)] = passed.kept

    def _backward(self, batch: _Batch, stage: int, microbatch: int) -> None:
        gradients = self._incoming_gradients(batch, stage, microbatch)
        self._resize(batch.extents[microbatch])
        kept = batch.kept.pop((stage, microbatch))
        found = self._stages[stage].backward(kept, gradients)
        self._live -= 1
        if stage > 0:
            batch.gradients[(stage - 1, microbatch)] = found

    def _backward_input(self, batch: _Batch, stage: int, microbatch: int) -> None:
        gradients = self._incoming_gradients(batch, stage, microbatch)
        self._resize(batch.extents[microbatch])
        kept = batch.kept.pop((stage, microbatch))
        found, jobs = self._stages[stage].backward_inputs(kept, gradients)
        batch.later[(stage, microbatch)] = jobs
        if stage > 0:
            batch.gradients[(stage - 1, microbatch)] = found

    def _backward_weight(self, batch: _Batch, stage: int, microbatch: int) -> None:
        jobs = batch.later.pop((stage, microbatch))
        jobs.reverse()
        while jobs:
            # Each is let go of with what it holds, before the next one makes its gradient.
            jobs.pop()()
        self._live -= 1

    def _resize(self, extent: Extent) -> None:
        """Tell the divided axes how long this microbatch's sequences are."""
        self._axes.resize(**dict(extent.lengths))

    # ---- messages -------------------------------------------------------------------------

    def _incoming(self, batch: _Batch, stage: int, microbatch: int) -> Values:
        """Values from the stage before: over a message, or handed over on this rank."""
        arrived = self._arrived(batch, Message(stage - 1, microbatch, "activation"))
        return batch.activations.pop((stage, microbatch), {}) if arrived is None else arrived

    def _incoming_gradients(self, batch: _Batch, stage: int, microbatch: int) -> Values:
        arrived = self._arrived(batch, Message(stage, microbatch, "gradient"))
        return batch.gradients.pop((stage, microbatch), {}) if arrived is None else arrived

    def _arrived(self, batch: _Batch, message: Message) -> Values | None:
        arrival = batch.arrivals.pop(message, None)
        if arrival is None:
            return None
        values = arrival.take()
        self._messenger.release(batch.program.complete.get(message, ()))
        return values

    def _send_activation(self, batch: _Batch, stage: int, microbatch: int) -> None:
        values = batch.activations.pop((stage + 1, microbatch))
        self._send(batch, Message(stage, microbatch, "activation"), values)

    def _send_gradient(self, batch: _Batch, stage: int, microbatch: int) -> None:
        values = batch.gradients.pop((stage - 1, microbatch))
        self._send(batch, Message(stage - 1, microbatch, "gradient"), values)

    def _send(self, batch: _Batch, message: Message, values: Values) -> None:
        layout = self._layout(message, batch.extents[message.microbatch])
        if layout.items:
            self._messenger.send(message, values, layout)
            if batch.program.window is not None:
                self._messenger.limit(message, batch.program.window)

    def _receive_activation(self, batch: _Batch, stage: int, microbatch: int) -> None:
        self._receive(batch, Message(stage - 1, microbatch, "activation"))

    def _receive_gradient(self, batch: _Batch, stage: int, microbatch: int) -> None:
        self._receive(batch, Message(stage, microbatch, "gradient"))

    def _receive(self, batch: _Batch, message: Message) -> None:
        layout = self._layout(message, batch.extents[message.microbatch])
        if layout.items:
            batch.arrivals[message] = self._messenger.receive(message, layout)

    def _layout(self, message: Message, extent: Extent) -> Layout:
        """What the message carries on this rank, alike on both ends."""
        key = message.edge, message.direction, extent
        if key not in self._layouts:
            self._resize(extent)
            self._layouts[key] = Layout.of(
                [
                    Item(
                        value.name,
                        _DTYPES.get(value.dtype, self._dtype),
                        local_shape(value, extent, self._axes),
                    )
                    for value in self._crossing[message.edge]
                    if value.grad or message.direction == "activation"
                ]
            )
        return self._layouts[key]


def words_of(instruction: Instruction) -> str:
    """`forward of microbatch 3`."""
    return f"{_WORDS[type(instruction)]} of microbatch {instruction.microbatch}"


def _crossing(plan: ParallelPlan, here: StageInfo, there: StageInfo) -> tuple[ValueInfo, ...]:
    """The values that `here` sends and `there` receives."""
    if set(here.sends) != set(there.receives):
        raise InternalError(
            f"stage {here.index} sends {sorted(here.sends)}"
            f" where stage {there.index} receives {sorted(there.receives)}"
        )
    values = {value.name: value for value in plan.values}
    return tuple(values[name] for name in here.sends)


def _last_backwards(program: Iterable[Instruction]) -> frozenset[Instruction]:
    """The instruction of each stage after which nothing is added to its weights."""
    last: dict[int, Instruction] = {}
    for instruction in program:
        if isinstance(instruction, Backward | BackwardWeight):
            last[instruction.stage] = instruction
    return frozenset(last.values())
