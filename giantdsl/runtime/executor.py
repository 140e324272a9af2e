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
from giantdsl.runtime.microbatch import Extent, Lengths, extent_of, local_shape
from giantdsl.runtime.stage import Kept, StageRunner, Values, WeightJobs
from giantdsl.schedule.build import build_schedule
from giantdsl.schedule.instructions import (
    Backward,
    BackwardInput,
    BackwardWeight,
    Compute,
    Direction,
    Forward,
    Instruction,
    Message,
    RecvActivation,
    RecvGradient,
    Schedule,
    ScheduleError,
    SendActivation,
    SendGradient,
    incoming,
)
from giantdsl.schedule.simulate import simulate

Part = Mapping[str, Tensor]
Shares = Mapping[str, float]
Key = tuple[int, int]
"""(stage, microbatch)."""
Layouts = dict[tuple[int, Direction], Layout]
"""Of one extent, by edge and direction."""

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
class _Step:
    """An instruction and what follows of it from the schedule, worked out before the first batch.

    `message` is what it sends, receives or waits for; `complete` are the sends that are over once
    what it waits for is here. `is_last`: nothing is added to the weights of its stage afterwards;
    `brings_last`: and each weight gets one gradient in it, its last.
    """

    instruction: Instruction
    act: Callable[[_Batch, _Step], None]
    stage: int
    microbatch: int
    message: Message | None
    complete: tuple[Message, ...]
    is_last: bool

    @property
    def brings_last(self) -> bool:
        return self.is_last and isinstance(self.instruction, Backward)


@dataclass(frozen=True, slots=True)
class _Program:
    """This rank's part of a schedule. `window` is `send_window` where nothing comes back."""

    steps: tuple[_Step, ...]
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
    layouts: Sequence[Layouts]
    window: int | None
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
    a stage's weights in a step, `on_stage_done(stage)` after it. The first is not called where
    backward passes are split: a weight that is used twice then gets two gradients in one pass, and
    the first does not tell that another comes. `note(stage, words)` hears of
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
        self._layouts: dict[Extent, Layouts] = {}
        self._actions = self._make_actions()
        self._lengths: Lengths | None = None
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
        self._live = 0
        if len(self._layouts) > _MAX_LAYOUTS:
            self._layouts.clear()
        layouts = [self._layouts.setdefault(extent, {}) for extent in extents]
        batch = _Batch(parts, noise, shares, train, extents, layouts, program.window)
        with torch.set_grad_enabled(train):
            for step in program.steps:
                self._perform(batch, step)
            self._messenger.finish()
        return batch.losses

    def _program(self, num_microbatches: int, train: bool) -> _Program:
        key = num_microbatches, train
        if key not in self._programs:
            schedule = self.schedule(num_microbatches, train)
            window = None if train else send_window(schedule)
            self._programs[key] = _Program(self._steps(schedule), window)
        return self._programs[key]

    def _steps(self, schedule: Schedule) -> tuple[_Step, ...]:
        rank = self._groups.pp.rank
        instructions = schedule.ranks[rank]
        last, complete = _last_backwards(instructions), known_complete(schedule, rank)
        steps: list[_Step] = []
        for each in instructions:
            message = _message_of(each, schedule.num_stages)
            over = () if message is None else complete.get(message, ())
            act, is_last = self._actions[type(each)], each in last
            steps.append(_Step(each, act, each.stage, each.microbatch, message, over, is_last))
        return tuple(steps)

    # ---- one instruction ------------------------------------------------------------------

    def _make_actions(self) -> dict[type, Callable[[_Batch, _Step], None]]:
        return {
            Forward: self._forward,
            Backward: self._backward,
            BackwardInput: self._backward_input,
            BackwardWeight: self._backward_weight,
            SendActivation: self._send_activation,
            SendGradient: self._send_gradient,
            RecvActivation: self._receive,
            RecvGradient: self._receive,
        }

    def _perform(self, batch: _Batch, step: _Step) -> None:
        started = 0.0 if self.timeline is None else time.perf_counter()
        if self._note is not None:
            self._note(step.stage, words_of(step.instruction))
        try:
            if step.brings_last and self._on_last_backward is not None:
                self._on_last_backward(step.stage)
            step.act(batch, step)
            if step.is_last and self._on_stage_done is not None:
                self._on_stage_done(step.stage)
        except Exception as error:
            if self._note is None:
                self._raise_located(error, step.instruction)
            raise
        if self.timeline is not None:
            self.timeline.append((step.instruction, started, time.perf_counter()))

    def _raise_located(self, error: Exception, instruction: Instruction) -> None:
        """A RuntimeFault saying where it was; errors that somebody else has to mend stay."""
        where = f"rank {self._groups.rank}, stage {instruction.stage}, {words_of(instruction)}"
        if isinstance(error, GiantError) and not isinstance(error, RuntimeFault):
            error.add_note(where)
            return
        text = str(error).strip().split("\n")[0] or type(error).__name__
        raise RuntimeFault(f"{where}: {text}") from error

    # ---- computing ------------------------------------------------------------------------

    def _forward(self, batch: _Batch, step: _Step) -> None:
        stage, microbatch = step.stage, step.microbatch
        received = self._incoming(batch, step, batch.activations)
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

    def _backward(self, batch: _Batch, step: _Step) -> None:
        stage, microbatch = step.stage, step.microbatch
        gradients = self._incoming(batch, step, batch.gradients)
        self._resize(batch.extents[microbatch])
        kept = batch.kept.pop((stage, microbatch))
        found = self._stages[stage].backward(kept, gradients)
        self._live -= 1
        if stage > 0:
            batch.gradients[(stage - 1, microbatch)] = found

    def _backward_input(self, batch: _Batch, step: _Step) -> None:
        stage, microbatch = step.stage, step.microbatch
        gradients = self._incoming(batch, step, batch.gradients)
        self._resize(batch.extents[microbatch])
        kept = batch.kept.pop((stage, microbatch))
        found, jobs = self._stages[stage].backward_inputs(kept, gradients)
        batch.later[(stage, microbatch)] = jobs
        if stage > 0:
            batch.gradients[(stage - 1, microbatch)] = found

    def _backward_weight(self, batch: _Batch, step: _Step) -> None:
        jobs = batch.later.pop((step.stage, step.microbatch))
        jobs.reverse()
        while jobs:
            # Each is let go of with what it holds, before the next one makes its gradient.
            jobs.pop()()
        self._live -= 1

    def _resize(self, extent: Extent) -> None:
        """Tell the divided axes how long this microbatch's sequences are."""
        if extent.lengths != self._lengths:
            self._axes.resize(**dict(extent.lengths))
            self._lengths = extent.lengths

    # ---- messages -------------------------------------------------------------------------

    def _incoming(self, batch: _Batch, step: _Step, handed_over: dict[Key, Values]) -> Values:
        """What comes from another stage: over a message, or handed over on this rank."""
        if step.message is None:
            return {}
        arrival = batch.arrivals.pop(step.message, None)
        if arrival is None:
            return handed_over.pop((step.stage, step.microbatch), {})
        values = arrival.take()
        self._messenger.release(step.complete)
        return values

    def _send_activation(self, batch: _Batch, step: _Step) -> None:
        self._send(batch, step, batch.activations.pop((step.stage + 1, step.microbatch)))

    def _send_gradient(self, batch: _Batch, step: _Step) -> None:
        self._send(batch, step, batch.gradients.pop((step.stage - 1, step.microbatch)))

    def _send(self, batch: _Batch, step: _Step, values: Values) -> None:
        message = step.message
        assert message is not None, "a send has a message"
        layout = self._layout(batch, message)
        if layout.items:
            self._messenger.send(message, values, layout)
            if batch.window is not None:
                self._messenger.limit(message, batch.window)

    def _receive(self, batch: _Batch, step: _Step) -> None:
        message = step.message
        assert message is not None, "a receive has a message"
        layout = self._layout(batch, message)
        if layout.items:
            batch.arrivals[message] = self._messenger.receive(message, layout)

    def _layout(self, batch: _Batch, message: Message) -> Layout:
        """What the message carries on this rank, alike on both ends."""
        layouts, key = batch.layouts[message.microbatch], (message.edge, message.direction)
        layout = layouts.get(key)
        if layout is None:
            extent = batch.extents[message.microbatch]
            self._resize(extent)
            layout = layouts[key] = Layout.of(
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
        return layout


def words_of(instruction: Instruction) -> str:
    """`forward of microbatch 3`."""
    return f"{_WORDS[type(instruction)]} of microbatch {instruction.microbatch}"


def _message_of(instruction: Instruction, num_stages: int) -> Message | None:
    if isinstance(instruction, Compute):
        return incoming(instruction, num_stages)
    return instruction.message


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
