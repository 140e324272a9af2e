"""Walks a pipeline rank's instructions: forward, backward, sends, receives."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from giantdsl.errors import GiantError, InternalError, RuntimeFault
from giantdsl.plan import ParallelPlan, StageInfo, ValueInfo
from giantdsl.runtime.axes import Axes
from giantdsl.runtime.groups import Groups
from giantdsl.runtime.messages import Arrival, Messenger
from giantdsl.runtime.weight_gradients import WeightGradients, defer_to
from giantdsl.schedule.build import build_schedule
from giantdsl.schedule.instructions import (
    Backward,
    BackwardInput,
    BackwardWeight,
    Compute,
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


@dataclass(slots=True)
class _Kept:
    """What a stage keeps of a microbatch until its backward pass."""

    received: dict[str, Tensor]
    sent: dict[str, Tensor]
    total: Tensor | None


@dataclass(slots=True)
class _Batch:
    """One step: its microbatches, and what is under way."""

    parts: Sequence[Part]
    noise: Sequence[Tensor | None]
    shares: Sequence[Shares]
    train: bool
    kept: dict[Key, _Kept] = field(default_factory=dict)
    activations: dict[Key, dict[str, Tensor]] = field(default_factory=dict)
    gradients: dict[Key, dict[str, Tensor]] = field(default_factory=dict)
    arrivals: dict[Message, Arrival] = field(default_factory=dict)
    later: dict[Key, list[Callable[[], None]]] = field(default_factory=dict)
    losses: dict[str, Tensor] = field(default_factory=dict)


class Executor:
    """Runs batches through the stages of one rank; every rank of the job runs the same batches.

    `stages` are this rank's, by index; all share `axes`. `dtype` is that of activations.
    `on_last_backward(stage)` is called before the backward pass that brings the last gradients of a
    stage's weights in a step. `note(stage, words)` hears of every instruction before it begins;
    without it, the words go into the message of what fails.
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
        note: Callable[[int, str], None] | None = None,
    ) -> None:
        self._plan, self._groups, self._axes = plan, groups, axes
        self._stages, self._dtype = dict(stages), dtype
        self._device = device or torch.device("cpu")
        self._on_last_backward = on_last_backward
        self._note = note
        self._infos: dict[int, StageInfo] = {stage.index: stage for stage in plan.stages}
        self._values: dict[str, ValueInfo] = {value.name: value for value in plan.values}
        self._messenger = Messenger(groups.pp, self._device, dtype)
        self._schedules: dict[tuple[int, bool], Schedule] = {}
        self._stores: dict[int, WeightGradients] = {}
        self._live = 0
        self._float_inputs = {
            i.name for i in plan.model.inputs if i.dtype == "float" and not i.loss_only
        }
        if plan.schedule == "zero_bubble":
            for index, stage in self._stages.items():
                self._stores[index] = WeightGradients()
                defer_to(stage, self._stores[index])
        self.timeline: list[tuple[Instruction, float, float]] | None = None
        """Start and end of each instruction of the last step, in seconds; None: not recorded."""

    @property
    def live_activations(self) -> int:
        """Microbatches of which this rank keeps activations now."""
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

        With `train`, gradients of those sums are added to the parameters. Raises RuntimeFault
        naming rank, stage and instruction where one fails.
        """
        batch = _Batch(parts, noise, shares, train)
        program = self.schedule(len(parts), train).ranks[self._groups.pp.rank]
        last = _last_backwards(program)
        for instruction in program:
            if self._on_last_backward is not None and last.get(instruction) is not None:
                self._on_last_backward(instruction.stage)
            self._timed(batch, instruction)
        self._messenger.finish()
        return batch.losses

    def _timed(self, batch: _Batch, instruction: Instruction) -> None:
        started = time.perf_counter()
        if self._note is not None:
            self._note(instruction.stage, words_of(instruction))
        try:
            self._do(batch, instruction)
        except GiantError:
            raise
        except Exception as error:
            if self._note is not None:
                raise
            text = str(error).strip().split("\n")[0] or type(error).__name__
            where = f"rank {self._groups.rank}, stage {instruction.stage}, {words_of(instruction)}"
            raise RuntimeFault(f"{where}: {text}") from error
        if self.timeline is not None:
            self.timeline.append((instruction, started, time.perf_counter()))

    def _do(self, batch: _Batch, instruction: Instruction) -> None:
        stage, microbatch = instruction.stage, instruction.microbatch
        match instruction:
            case Forward():
                self._forward(batch, stage, microbatch)
            case Backward():
                self._backward(batch, stage, microbatch)
            case BackwardInput():
                self._backward_input(batch, stage, microbatch)
            case BackwardWeight():
                for job in batch.later.pop((stage, microbatch)):
                    job()
            case SendActivation():
                values = batch.activations.pop((stage + 1, microbatch))
                if values:
                    self._messenger.send(instruction.message, list(values.values()))
            case SendGradient():
                values = batch.gradients.pop((stage - 1, microbatch))
                if values:
                    self._messenger.send(instruction.message, list(values.values()))
            case RecvActivation():
                self._receive(batch, instruction.message, self._infos[stage].receives, microbatch)
            case RecvGradient():
                names = [n for n in self._infos[stage].sends if self._values[n].grad]
                self._receive(batch, instruction.message, names, microbatch)

    # ---- messages -------------------------------------------------------------------------

    def _receive(
        self, batch: _Batch, message: Message, names: Sequence[str], microbatch: int
    ) -> None:
        if names:
            lengths = self._resize(batch, microbatch)
            values = [self._values[name] for name in names]
            rows = self._rows(batch, microbatch)
            layout = self._messenger.layout(values, rows, self._axes, lengths)
            batch.arrivals[message] = self._messenger.receive(message, layout)

    def _incoming(self, batch: _Batch, stage: int, microbatch: int) -> dict[str, Tensor]:
        """Values from the stage before: over a message, or handed over on this rank."""
        if stage == 0 or not self._infos[stage].receives:
            batch.activations.pop((stage, microbatch), None)
            return {}
        arrival = batch.arrivals.pop(Message(stage - 1, microbatch, "activation"), None)
        found = batch.activations.pop((stage, microbatch)) if arrival is None else arrival.take()
        for name, tensor in found.items():
            if batch.train and self._values[name].grad:
                tensor.requires_grad_()
        return found

    def _incoming_gradients(self, batch: _Batch, stage: int, microbatch: int) -> dict[str, Tensor]:
        arrival = batch.arrivals.pop(Message(stage, microbatch, "gradient"), None)
        if arrival is not None:
            return arrival.take()
        return batch.gradients.pop((stage, microbatch), {})

    # ---- computing ------------------------------------------------------------------------

    def _forward(self, batch: _Batch, stage: int, microbatch: int) -> None:
        info, part = self._infos[stage], batch.parts[microbatch]
        self._resize(batch, microbatch)
        received = self._incoming(batch, stage, microbatch)
        arguments: dict[str, Tensor | None] = {n: self._input(part, n) for n in info.inputs}
        arguments.update(received)
        noise = batch.noise[microbatch]
        if info.draws and noise is not None:
            arguments["noise"] = noise.to(self._device)
        module = self._stages[stage]
        made = dict(zip(info.makes, module(**arguments), strict=False))
        total = self._add_losses(batch, dict(module.losses), microbatch)
        sent = {name: made[name] if name in made else received[name] for name in info.sends}
        if stage + 1 < len(self._plan.stages):
            # Detached: the next stage differentiates for itself.
            batch.activations[(stage + 1, microbatch)] = {n: t.detach() for n, t in sent.items()}
        if batch.train:
            self._live += 1
            batch.kept[(stage, microbatch)] = _Kept(received, sent, total)

    def _input(self, part: Part, name: str) -> Tensor | None:
        tensor = part.get(name)
        if tensor is None:
            return None
        dtype = self._dtype if name in self._float_inputs else None
        return tensor.to(self._device, dtype, non_blocking=True)

    def _add_losses(
        self, batch: _Batch, terms: Mapping[str, Tensor], microbatch: int
    ) -> Tensor | None:
        share = batch.shares[microbatch]
        total: Tensor | None = None
        for name, term in terms.items():
            weighted = torch.as_tensor(term) * share.get(name, share[""])
            value = weighted.detach()
            batch.losses[name] = batch.losses[name] + value if name in batch.losses else value
            total = weighted if total is None else total + weighted
        return total

    def _backward(self, batch: _Batch, stage: int, microbatch: int) -> None:
        self._resize(batch, microbatch)
        kept = batch.kept.pop((stage, microbatch))
        gradients = self._incoming_gradients(batch, stage, microbatch)
        roots: list[Tensor] = []
        given: list[Tensor | None] = []
        if kept.total is not None and kept.total.requires_grad:
            roots.append(kept.total)
            given.append(None)
        for name, gradient in gradients.items():
            if kept.sent[name].requires_grad:
                roots.append(kept.sent[name])
                given.append(gradient)
        if roots:
            torch.autograd.backward(roots, given)
        self._live -= 1
        if stage > 0:
            flows = {n: t for n, t in kept.received.items() if self._values[n].grad}
            batch.gradients[(stage - 1, microbatch)] = {
                name: torch.zeros_like(t) if t.grad is None else t.grad for name, t in flows.items()
            }

    def _backward_input(self, batch: _Batch, stage: int, microbatch: int) -> None:
        store = self._stores[stage]
        store.active = True
        try:
            self._backward(batch, stage, microbatch)
        finally:
            store.active = False
        batch.later[(stage, microbatch)] = store.take()

    # ---- sizes ----------------------------------------------------------------------------

    def _rows(self, batch: _Batch, microbatch: int) -> int:
        part = batch.parts[microbatch]
        for info in self._plan.model.inputs:
            if info.name in part and None in info.sizes:
                return part[info.name].size(info.sizes.index(None))
        raise InternalError("no input has a batch axis")

    def _resize(self, batch: _Batch, microbatch: int) -> dict[str, int]:
        """Tell the divided axes how long this microbatch's sequences are."""
        part = batch.parts[microbatch]
        lengths: dict[str, int] = {}
        for info in self._plan.model.inputs:
            if info.name in part:
                for at in info.seq:
                    lengths[info.axes[at].rstrip("'")] = part[info.name].size(at)
        self._axes.resize(**lengths)
        return lengths


def _last_backwards(program: Sequence[Instruction]) -> dict[Instruction, int]:
    """The instruction after which nothing is added to a stage's weights, for each stage."""
    last: dict[int, Compute] = {}
    for instruction in program:
        if isinstance(instruction, Backward | BackwardWeight):
            last[instruction.stage] = instruction
    return {instruction: stage for stage, instruction in last.items()}


def words_of(instruction: Instruction) -> str:
    """`forward of microbatch 3`."""
    names: dict[type, str] = defaultdict(lambda: "an instruction")
    names |= {
        Forward: "forward",
        Backward: "backward",
        BackwardInput: "backward of inputs",
        BackwardWeight: "backward of weights",
        SendActivation: "sending activations",
        RecvActivation: "receiving activations",
        SendGradient: "sending gradients",
        RecvGradient: "receiving gradients",
    }
    return f"{names[type(instruction)]} of microbatch {instruction.microbatch}"
