"""What crosses from stage to stage: packed, sent, received."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from giantdsl.plan import ValueInfo
from giantdsl.runtime.axes import Axes
from giantdsl.runtime.groups import Group
from giantdsl.schedule.instructions import Message

_DTYPES = {"int": torch.int64, "bool": torch.bool}


@dataclass(slots=True)
class Arrival:
    """A receive on its way: flat buffers by dtype, cut into values when they are there."""

    works: list[dist.Work]
    flats: dict[torch.dtype, Tensor]
    layout: Sequence[tuple[str, torch.dtype, tuple[int, ...]]]

    def take(self) -> dict[str, Tensor]:
        """Wait; the values by name."""
        for work in self.works:
            work.wait()
        places = dict.fromkeys(self.flats, 0)
        found: dict[str, Tensor] = {}
        for name, dtype, shape in self.layout:
            size = torch.Size(shape).numel()
            start = places[dtype]
            found[name] = self.flats[dtype][start : start + size].view(shape)
            places[dtype] = start + size
        return found


class Messenger:
    """Sends and receives of one pipeline rank. Values of a message and dtype travel as one tensor.

    `pp` is the group of the pipeline. Tags tell messages apart where the backend has them; the
    order in which both ends post is the same, so that a backend without them is right too.
    """

    def __init__(self, pp: Group, device: torch.device, dtype: torch.dtype) -> None:
        self._pp, self._device, self._dtype = pp, device, dtype
        self._leaving: list[tuple[dist.Work, Tensor]] = []

    def layout(
        self, values: Sequence[ValueInfo], rows: int, axes: Axes, lengths: Mapping[str, int]
    ) -> list[tuple[str, torch.dtype, tuple[int, ...]]]:
        """Name, type and shape on this rank of each value, without asking the sender."""
        return [
            (
                value.name,
                _DTYPES.get(value.dtype, self._dtype),
                local_shape(value, rows, axes, lengths),
            )
            for value in values
        ]

    def send(self, message: Message, tensors: Sequence[Tensor]) -> None:
        """Start sending; the tensors are kept until `finish`."""
        target = self._pp.ranks[message.target % self._pp.size]
        for number, flat in enumerate(_packed(tensors)):
            tag = _tag(message, number)
            work = dist.isend(flat, target, group=self._pp.process_group, tag=tag)
            assert work is not None, "a rank sends from a group it is in"
            self._leaving.append((work, flat))

    def receive(
        self, message: Message, layout: Sequence[tuple[str, torch.dtype, tuple[int, ...]]]
    ) -> Arrival:
        """Post the receive."""
        source = self._pp.ranks[message.source % self._pp.size]
        sizes: dict[torch.dtype, int] = {}
        for _, dtype, shape in layout:
            sizes[dtype] = sizes.get(dtype, 0) + torch.Size(shape).numel()
        works: list[dist.Work] = []
        flats: dict[torch.dtype, Tensor] = {}
        for number, (dtype, size) in enumerate(sizes.items()):
            flat = torch.empty(size, dtype=dtype, device=self._device)
            tag = _tag(message, number)
            work = dist.irecv(flat, source, group=self._pp.process_group, tag=tag)
            assert work is not None, "a rank receives in a group it is in"
            works.append(work)
            flats[dtype] = flat
        return Arrival(works, flats, layout)

    def finish(self) -> None:
        """Wait until everything has left."""
        for work, _ in self._leaving:
            work.wait()
        self._leaving.clear()


def local_shape(
    value: ValueInfo, rows: int, axes: Axes, lengths: Mapping[str, int]
) -> tuple[int, ...]:
    """A value's shape on this rank: `rows` of the batch, `lengths` of sequences, parts of axes."""
    shape: list[int] = []
    for axis, size, split in zip(value.axes, value.sizes, value.split, strict=True):
        base = axis.rstrip("'")
        if size is None:
            shape.append(rows)
        elif any(axes.groups.mesh.axis_size(m) > 1 for m in split):
            shape.append(axes.size(axis))
        else:
            shape.append(lengths.get(base, size))
    return tuple(shape)


def _packed(tensors: Sequence[Tensor]) -> list[Tensor]:
    """One flat tensor a dtype, in the order in which dtypes first come."""
    by_dtype: dict[torch.dtype, list[Tensor]] = {}
    for tensor in tensors:
        by_dtype.setdefault(tensor.dtype, []).append(tensor.detach().reshape(-1))
    return [
        parts[0].contiguous() if len(parts) == 1 else torch.cat(parts)
        for parts in by_dtype.values()
    ]


def _tag(message: Message, number: int) -> int:
    """Different for every message that may be under way at once."""
    direction = 0 if message.direction == "activation" else 1
    return ((message.microbatch * 1024 + message.edge) * 2 + direction) * 4 + number
