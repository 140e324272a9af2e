"""Gradients summed over ranks, in buckets, while the last backward pass still runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from giantdsl.errors import InternalError
from giantdsl.runtime.groups import Group, Groups
from giantdsl.train.parallel.buckets import Bucket
from giantdsl.train.parallel.held import Held
from giantdsl.train.parallel.sums import PendingSum, start_sum, sum_over
from giantdsl.train.parallel.ties import TieGroups


@dataclass(frozen=True, slots=True)
class Summed:
    """Gradients of this rank that lie together: all of them in `flat`, with zeros between.

    What concerns all elements alike, such as their norm, costs one call this way and not one for
    each parameter. `own` is the part that other ranks which have the same leave to this one.
    """

    flat: Tensor
    own: Tensor
    parts: Mapping[str, Tensor]


@dataclass(slots=True)
class _Slot:
    """A bucket on this rank: its members, who have not reported yet, and its buffer.

    `of_stage` are the members' names by the stage whose backward pass brings their last gradient,
    none of a `late` bucket. `spans` says where they lie in this rank's chunk. `views` are their
    places in `flat`, in their `shapes`; `summed` lies there too.
    """

    bucket: Bucket
    members: list[Held]
    shapes: list[tuple[int, ...]]
    of_stage: Mapping[int, set[str]]
    spans: list[tuple[str, int, int]]
    group: Group
    tie: Group | None
    divide: bool
    waits_for: set[str] = field(default_factory=set)
    flat: Tensor | None = None
    views: list[Tensor] = field(default_factory=list)
    pending: PendingSum | None = None
    summed: Summed | None = None


class Reducer:
    """Sums the gradients of one step: `begin`, backward passes, `finish`.

    `divide`: only the part of a gradient that this rank owns is wanted (zero 1 and 2). `keep`:
    buffers live from step to step; otherwise they go as soon as they can (zero 2).

    A bucket leaves when all its members have their last gradient and the bucket before it has
    left: the order of collectives is the same on every rank. Parameters of several stages wait for
    `finish`: stages end their backward passes at different times.
    """

    def __init__(
        self,
        held: Mapping[str, Held],
        buckets: Sequence[Bucket],
        groups: Groups,
        ties: TieGroups,
        *,
        divide: bool,
        keep: bool,
    ) -> None:
        self._held = held
        self._keep = keep
        self._slots = [
            _slot(bucket, held, groups.over(*bucket.key.sum_over), ties.of(bucket.key.tied), divide)
            for bucket in buckets
        ]
        self._slot_of = {name: slot for slot in self._slots for name in slot.bucket.names}
        self._alone = {name: h for name, h in held.items() if name not in self._slot_of}
        self._last = {stage: slot for slot in self._slots for stage in slot.of_stage}
        """The last bucket of each stage."""
        self._armed: set[int] = set()
        self._next = 0
        self.reached: set[str] = set()

    def listens_to(self, name: str) -> bool:
        """Does `ready(name)` change anything?

        Not where the bucket is the last of its stage: it is complete when the stage's backward
        pass is over, and a call from the midst of that pass for each parameter is dear.
        """
        slot = self._slot_of.get(name)
        stage = self._held[name].stored.stages[0]
        return slot is not None and not slot.bucket.key.late and slot is not self._last[stage]

    def begin(self) -> None:
        """Forget the gradients of the step before."""
        for held in self._held.values():
            held.clear()
        for slot in self._slots:
            slot.waits_for = set(slot.bucket.names)
            slot.pending = None
            if not self._keep:
                slot.flat, slot.views, slot.summed = None, [], None
        self._armed.clear()
        self._next = 0
        self.reached.clear()

    def arm(self, stage: int) -> None:
        """The next backward pass of `stage` is its last one in this step."""
        self._armed.add(stage)

    def ready(self, name: str) -> None:
        """A backward pass brought a gradient of `name`: it leaves if that was the last one."""
        if self._held[name].stored.stages[0] in self._armed:
            self._slot_of[name].waits_for.discard(name)
            self._launch_complete()

    def stage_done(self, stage: int) -> None:
        """The last backward pass of `stage` is over: what it did not reach, nothing will."""
        for slot in self._slots:
            slot.waits_for -= slot.of_stage.get(stage, set())
        self._launch_complete()

    def finish(self) -> list[Summed]:
        """Every gradient summed; waits. Parameters without a bucket need no sum.

        Of a divided parameter it is the piece that this rank owns, one-dimensional, absent where
        there is none; of others the whole tensor of this rank. What no rank's backward pass
        reached is zeros: see `reached`, which tells of this rank. Raises InternalError for a
        gradient that came after its bucket had left.
        """
        for slot in self._slots[: self._next]:
            _check_nothing_came(slot)
        for slot in self._slots[self._next :]:
            self._launch(slot)
        self._next = len(self._slots)
        summed: list[Summed] = []
        for name, held in self._alone.items():
            gradient = held.gradient()
            if gradient is not None:
                summed.append(Summed(gradient, gradient, {name: gradient}))
                if not held.is_made_up:
                    self.reached.add(name)
        for slot in self._slots:
            if not slot.divide:
                _pending(slot).gather()
        return [*summed, *(self._collect(slot) for slot in self._slots)]

    def _launch_complete(self) -> None:
        while self._next < len(self._slots) and not self._slots[self._next].waits_for:
            self._launch(self._slots[self._next])
            self._next += 1

    def _launch(self, slot: _Slot) -> None:
        """Pack the gradients, zeros for what is absent, and start the sum."""
        if slot.flat is None:
            first = slot.members[0]
            slot.flat = torch.zeros(
                slot.bucket.length, dtype=first.dtype, device=first.local.device
            )
            slot.views = _views(slot, slot.flat)
        targets, sources = [], []
        for name, held, view in zip(slot.bucket.names, slot.members, slot.views, strict=True):
            gradient = held.gradient()
            if gradient is None:
                view.zero_()
                continue
            if not held.is_made_up:
                self.reached.add(name)
            targets.append(view)
            sources.append(gradient)
            held.clear()
        if targets:
            torch._foreach_copy_(targets, sources)
        if slot.tie is not None:
            sum_over(slot.flat, slot.tie)
        slot.pending = start_sum(slot.flat, slot.group, scatter=slot.divide)

    def _collect(self, slot: _Slot) -> Summed:
        """Wait for a bucket; where buffers live on, they lie where they lay in the step before."""
        pending = _pending(slot)
        if not slot.divide:
            pending.wait()
            if slot.summed is None:
                parts = dict(zip(slot.bucket.names, slot.views, strict=True))
                slot.summed = Summed(pending.flat, pending.chunk(), parts)
            return slot.summed
        if self._keep:
            chunk = pending.chunk()
        else:
            # A tensor of its own, so that the rest of the buffer can go.
            chunk = pending.chunk(pending.flat.new_empty(slot.bucket.chunk))
            slot.flat, slot.views, slot.pending = None, [], None
        if slot.summed is None:
            parts = {name: chunk[start:stop] for name, start, stop in slot.spans}
            slot.summed = Summed(chunk, chunk, parts)
        return slot.summed


def _slot(
    bucket: Bucket, held: Mapping[str, Held], group: Group, tie: Group | None, divide: bool
) -> _Slot:
    members = [held[name] for name in bucket.names]
    return _Slot(
        bucket=bucket,
        members=members,
        shapes=[tuple(each.local.shape) for each in members],
        of_stage=_of_stage(bucket, held),
        spans=_spans(bucket, group.rank),
        group=group,
        tie=tie,
        divide=divide and bucket.parts > 1,
    )


def _of_stage(bucket: Bucket, held: Mapping[str, Held]) -> dict[int, set[str]]:
    found: dict[int, set[str]] = {}
    for name in () if bucket.key.late else bucket.names:
        found.setdefault(held[name].stored.stages[0], set()).add(name)
    return found


def _views(slot: _Slot, flat: Tensor) -> list[Tensor]:
    """The members' places in the flat buffer, in their shapes."""
    places = zip(slot.shapes, slot.bucket.offsets, strict=True)
    # One call for each: zero 2 makes them anew in every step.
    return [flat.as_strided(shape, _strides(shape), offset) for shape, offset in places]


def _strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))


def _spans(bucket: Bucket, place: int) -> list[tuple[str, int, int]]:
    """(name, start, stop) in the chunk of `place`; not those of which it has nothing."""
    found = []
    for name, offset in zip(bucket.names, bucket.offsets, strict=True):
        start, stop = bucket.span(name, place)
        if stop > start:
            first = offset - place * bucket.chunk
            found.append((name, first + start, first + stop))
    return found


def _pending(slot: _Slot) -> PendingSum:
    assert slot.pending is not None, "every bucket has left"
    return slot.pending


def _check_nothing_came(slot: _Slot) -> None:
    late = next((held for held in slot.members if held.gradient() is not None), None)
    if late is not None:
        raise InternalError(f"a gradient of `{late.name}` came after the last backward pass")
