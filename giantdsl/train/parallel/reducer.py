"""Gradients summed over ranks, in buckets, while the last backward pass still runs."""

from __future__ import annotations

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


@dataclass(slots=True)
class _Slot:
    """A bucket on this rank: its members, who have not reported yet, and its buffer."""

    bucket: Bucket
    members: list[Held]
    group: Group
    tie: Group | None
    divide: bool
    waits_for: set[str]
    flat: Tensor | None = None
    views: list[Tensor] = field(default_factory=list)
    """The members' places in `flat`, in their shapes."""
    pending: PendingSum | None = None


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
            _Slot(
                bucket=bucket,
                members=[held[name] for name in bucket.names],
                group=groups.over(*bucket.key.sum_over),
                tie=ties.of(bucket.key.tied),
                divide=divide and bucket.parts > 1,
                waits_for=set(),
            )
            for bucket in buckets
        ]
        self._slot_of = {name: slot for slot in self._slots for name in slot.bucket.names}
        self._armed: set[int] = set()
        self._next = 0
        self.reached: set[str] = set()

    def begin(self) -> None:
        """Forget the gradients of the step before."""
        for held in self._held.values():
            held.clear()
        for slot in self._slots:
            slot.waits_for = set(slot.bucket.names)
            slot.pending = None
            if not self._keep:
                slot.flat, slot.views = None, []
        self._armed.clear()
        self._next = 0
        self.reached.clear()

    def arm(self, stage: int) -> None:
        """The next backward pass of `stage` is its last one in this step."""
        self._armed.add(stage)

    def ready(self, name: str) -> None:
        """A backward pass brought a gradient of `name`: it leaves if that was the last one."""
        slot = self._slot_of.get(name)
        if slot is None:
            return
        if slot.pending is not None:
            raise InternalError(f"a gradient of `{name}` came after the last backward pass")
        if slot.bucket.key.late or self._held[name].stored.stages[0] not in self._armed:
            return
        slot.waits_for.discard(name)
        while self._next < len(self._slots) and not self._slots[self._next].waits_for:
            self._launch(self._slots[self._next])
            self._next += 1

    def finish(self) -> dict[str, Tensor]:
        """Every gradient summed, by name; waits. Parameters without a bucket need no sum.

        Of a divided parameter it is the piece that this rank owns, one-dimensional, absent where
        there is none; of others the whole tensor of this rank. What no rank's backward pass
        reached is zeros: see `reached`, which tells of this rank.
        """
        for slot in self._slots[self._next :]:
            self._launch(slot)
        self._next = len(self._slots)
        summed: dict[str, Tensor] = {}
        for name, held in self._held.items():
            gradient = held.gradient()
            if name in self._slot_of or gradient is None:
                continue
            summed[name] = gradient
            if held.is_reached:
                self.reached.add(name)
        for slot in self._slots:
            if not slot.divide:
                _pending(slot).gather()
        for slot in self._slots:
            summed.update(self._collect(slot))
        return summed

    def _launch(self, slot: _Slot) -> None:
        """Pack the gradients, zeros for what is absent, and start the sum."""
        if slot.flat is None:
            first = slot.members[0]
            slot.flat = torch.zeros(
                slot.bucket.length, dtype=first.dtype, device=first.local.device
            )
            slot.views = _views(slot, slot.flat)
        targets, sources = [], []
        for held, view in zip(slot.members, slot.views, strict=True):
            gradient = held.gradient()
            if gradient is None:
                view.zero_()
                continue
            if held.is_reached:
                self.reached.add(held.name)
            targets.append(view)
            sources.append(gradient)
        if targets:
            torch._foreach_copy_(targets, sources)
        for held in slot.members:
            held.clear()
        if slot.tie is not None:
            sum_over(slot.flat, slot.tie)
        slot.pending = start_sum(slot.flat, slot.group, scatter=slot.divide)

    def _collect(self, slot: _Slot) -> dict[str, Tensor]:
        pending = _pending(slot)
        if not slot.divide:
            pending.wait()
            return dict(zip(slot.bucket.names, slot.views, strict=True))
        place, size = slot.group.rank, slot.bucket.chunk
        chunk = pending.chunk()
        if not self._keep:
            # The chunk is a view: a copy lets go of the rest.
            chunk, slot.flat, slot.pending = chunk.clone(), None, None
            slot.views = []
        pieces = {}
        for name, offset in zip(slot.bucket.names, slot.bucket.offsets, strict=True):
            start, stop = slot.bucket.span(name, place)
            if stop > start:
                first = offset + start - place * size
                pieces[name] = chunk[first : first + stop - start]
        return pieces


def _views(slot: _Slot, flat: Tensor) -> list[Tensor]:
    """The members' places in the flat buffer, in their shapes."""
    places = zip(slot.members, slot.bucket.offsets, strict=True)
    locals_ = [(held.local, offset) for held, offset in places]
    return [flat[offset : offset + own.numel()].view(own.shape) for own, offset in locals_]


def _pending(slot: _Slot) -> PendingSum:
    assert slot.pending is not None, "every bucket has left"
    return slot.pending
