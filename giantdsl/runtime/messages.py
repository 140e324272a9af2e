"""What crosses from stage to stage: packed, sent, received."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from giantdsl.errors import InternalError
from giantdsl.runtime.links import Links
from giantdsl.schedule.communication import Link
from giantdsl.schedule.instructions import Message, rank_of

PACKED_BYTES = 64 * 1024
"""Values up to this size share a message: fewer launches on NCCL. On gloo over loopback three
values of up to 256 KiB take as long either way (within 15 %), above it the copy costs a tenth."""


@dataclass(frozen=True, slots=True)
class Item:
    """A value on the wire."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]

    @property
    def num_bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class Layout:
    """The values of a message in their order; both ends know it, so no shape is ever sent.

    `parcels` are how they travel, each one a tensor: a large value alone, all small ones as bytes.
    """

    items: tuple[Item, ...]
    parcels: tuple[tuple[Item, ...], ...]

    @property
    def is_one(self) -> bool:
        """Is it one value, and that travels?"""
        return len(self.items) == 1 and len(self.parcels) == 1

    @classmethod
    def of(cls, items: Sequence[Item]) -> Layout:
        """Values without elements do not travel."""
        large = [(item,) for item in items if item.num_bytes > PACKED_BYTES]
        small = [item for item in items if 0 < item.num_bytes <= PACKED_BYTES]
        # Wide types first: then each value begins at a multiple of its width.
        small.sort(key=lambda item: -item.dtype.itemsize)
        return cls(tuple(items), (*large, *([tuple(small)] if small else [])))


@dataclass(slots=True)
class Arrival:
    """A receive on its way."""

    works: list[dist.Work]
    buffers: list[Tensor]
    layout: Layout

    def take(self) -> dict[str, Tensor]:
        """Wait; the values by name, in the layout's order."""
        for work in self.works:
            work.wait()
        if self.layout.is_one:
            return {self.layout.items[0].name: self.buffers[0]}
        found = {
            name: tensor
            for parcel, buffer in zip(self.layout.parcels, self.buffers, strict=True)
            for name, tensor in _unpacked(parcel, buffer)
        }
        device = self.buffers[0].device if self.buffers else None
        return {
            item.name: found[item.name]
            if item.name in found
            else torch.empty(item.shape, dtype=item.dtype, device=device)
            for item in self.layout.items
        }


class Messenger:
    """Sends and receives of one pipeline rank. Nothing here waits for another rank but `take`,
    and what is told to wait for a send.

    Both ends of a link send and receive in the same order, so it does not matter whether the
    backend tells messages apart by their tags.
    """

    def __init__(self, links: Links, device: torch.device) -> None:
        self._links, self._device = links, device
        self._leaving: dict[Message, list[tuple[dist.Work, Tensor]]] = {}

    @property
    def num_leaving(self) -> int:
        """Messages whose buffers are kept."""
        return len(self._leaving)

    def send(self, message: Message, values: Mapping[str, Tensor], layout: Layout) -> None:
        """Start sending. The buffers are kept until `release`, `limit` or `finish`.

        Raises InternalError for values that are not what the other end expects.
        """
        _check(message, values, layout)
        target = rank_of(message.target, self._links.pp.size)
        started: list[tuple[dist.Work, Tensor]] = []
        for number, parcel in enumerate(layout.parcels):
            buffer = _packed([values[item.name].detach() for item in parcel])
            tag = _tag(message, number)
            started.append((self._links.send(buffer, target, tag), buffer))
        self._leaving[message] = started

    def receive(self, message: Message, layout: Layout) -> Arrival:
        """Post the receive."""
        source = rank_of(message.source, self._links.pp.size)
        works: list[dist.Work] = []
        buffers: list[Tensor] = []
        for number, parcel in enumerate(layout.parcels):
            buffer = self._buffer(parcel)
            tag = _tag(message, number)
            works.append(self._links.receive(buffer, source, tag))
            buffers.append(buffer)
        return Arrival(works, buffers, layout)

    def release(self, messages: Sequence[Message]) -> None:
        """Let go of messages that are known to have arrived."""
        for message in messages:
            for work, _ in self._leaving.pop(message, ()):
                work.wait()

    def limit(self, link_of_message: Message, count: int) -> None:
        """Wait for the oldest messages of a link until no more than `count` are under way."""
        link = self._link(link_of_message)
        under_way = [message for message in self._leaving if self._link(message) == link]
        self.release(under_way[: max(0, len(under_way) - count)])

    def finish(self) -> None:
        """Wait until everything has left."""
        self.release(list(self._leaving))

    def _link(self, message: Message) -> Link:
        size = self._links.pp.size
        return rank_of(message.source, size), rank_of(message.target, size)

    def _buffer(self, parcel: tuple[Item, ...]) -> Tensor:
        if len(parcel) == 1:
            return torch.empty(parcel[0].shape, dtype=parcel[0].dtype, device=self._device)
        size = sum(item.num_bytes for item in parcel)
        return torch.empty(size, dtype=torch.uint8, device=self._device)


def _check(message: Message, values: Mapping[str, Tensor], layout: Layout) -> None:
    for item in layout.items:
        tensor = values[item.name]
        if tensor.dtype != item.dtype or tensor.shape != item.shape:
            raise InternalError(
                f"`{item.name}` from stage {message.source} is {_shown(tensor.dtype, tensor.shape)}"
                f" where stage {message.target} expects {_shown(item.dtype, item.shape)}"
            )


def _shown(dtype: torch.dtype, shape: Sequence[int]) -> str:
    return f"{str(dtype).removeprefix('torch.')} {list(shape)}"


def _packed(tensors: Sequence[Tensor]) -> Tensor:
    """One contiguous tensor: the only one there is, or the bytes of all."""
    if len(tensors) == 1:
        return tensors[0].contiguous()
    return torch.cat([tensor.contiguous().view(-1).view(torch.uint8) for tensor in tensors])


def _unpacked(parcel: tuple[Item, ...], buffer: Tensor) -> list[tuple[str, Tensor]]:
    if len(parcel) == 1:
        return [(parcel[0].name, buffer)]
    pieces = buffer.split([item.num_bytes for item in parcel])
    return [
        (item.name, piece.view(item.dtype).view(item.shape))
        for item, piece in zip(parcel, pieces, strict=True)
    ]


def _tag(message: Message, number: int) -> int:
    """Tells apart what is under way on a link at once, in 31 bits."""
    direction = 0 if message.direction == "activation" else 1
    place = (message.microbatch * 1024 + message.edge) * 2 + direction
    return (place * 64 + number) % 2**31
