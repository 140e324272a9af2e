"""Whole logical tensors from the pieces of all ranks, on rank 0, and back.

One tensor at a time: rank 0 never holds more than the largest. What a rank has of which tensor
follows from the plan (`Storage.piece`), so only values are sent.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn

from giantdsl.errors import InternalError, SettingsError
from giantdsl.plan import StoredParameter
from giantdsl.runtime.device import compute_dtype
from giantdsl.runtime.groups import from_first
from giantdsl.train.optim import make_inner
from giantdsl.train.parallel.buckets import Piece
from giantdsl.train.parallel.optimizer import ParallelOptimizer, Place
from giantdsl.train.parallel.ownership import dims_of, volume


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole tensor and where it lies: `pieces[rank]`, None where a rank has nothing of it."""

    name: str
    shape: tuple[int, ...]
    view: tuple[int, ...]
    dtype: torch.dtype
    pieces: tuple[Piece | None, ...]

    def cut(self, whole: Tensor, rank: int) -> Tensor | None:
        """A rank's piece of the whole tensor, [elements]."""
        piece = self.pieces[rank]
        if piece is None:
            return None
        box = tuple(slice(start, stop) for start, stop in piece.box)
        return whole.reshape(self.view)[box].reshape(-1)[slice(*piece.span)]


def whole_parameters(place: Place) -> list[Whole]:
    """All parameters of the plan, as checkpoints hold them: masters where there are some."""
    return [_like(place, stored, stored.info.name) for stored in place.plan.parameters]


def whole_state(optimizer: ParallelOptimizer) -> list[Whole]:
    """All slots of the optimizer's state, `<slot>/<parameter>`."""
    place = optimizer.place
    trained = [p for p in place.plan.parameters if p.info.name not in place.storage.frozen]
    # The slots are what torch's optimizer makes for the whole parameter, without its memory.
    models = [
        nn.Parameter(torch.empty(p.info.shape, dtype=_dtype(place, p), device="meta"))
        for p in trained
    ]
    inner = make_inner(optimizer.kind, [p.info for p in trained], models)
    return [
        _slot(place, stored, f"{slot}/{stored.info.name}", slot, value)
        for stored, model in zip(trained, models, strict=True)
        for slot, value in inner.state[model].items()
    ]


def gather_parameters(optimizer: ParallelOptimizer) -> Iterator[tuple[str, Tensor | None]]:
    """Each parameter by name, whole on the CPU of rank 0, None on the others.

    Collective, as are the other two: every rank has to go through to the end.
    """
    return gather_full(optimizer.place, whole_parameters(optimizer.place), optimizer.tensors)


def gather_gradients(optimizer: ParallelOptimizer) -> Iterator[tuple[str, Tensor | None]]:
    """Each gradient that `judge` found reached, as `gather_parameters`."""
    place = optimizer.place
    wanted = [w for w in whole_parameters(place) if w.name in optimizer.reached]
    return gather_full(place, wanted, optimizer.gradients())


def gather_state(optimizer: ParallelOptimizer) -> Iterator[tuple[str, Tensor | None]]:
    """Each slot of the optimizer's state, as `gather_parameters`."""
    return gather_full(optimizer.place, whole_state(optimizer), optimizer.state_tensors())


def scatter_parameters(optimizer: ParallelOptimizer, found: Mapping[str, Tensor] | None) -> None:
    """Take over parameters that rank 0 has whole, then `publish`. Others give None.

    Raises SettingsError on every rank where rank 0 lacks one or has one of another shape or type.
    """
    scatter_full(optimizer.place, whole_parameters(optimizer.place), optimizer.tensors, found)
    optimizer.publish()


def scatter_state(optimizer: ParallelOptimizer, found: Mapping[str, Tensor] | None) -> None:
    """Take over the optimizer's state, as `scatter_parameters`."""
    scatter_full(optimizer.place, whole_state(optimizer), optimizer.state_tensors(), found)


def gather_full(
    place: Place, wanted: list[Whole], own: Mapping[str, Tensor]
) -> Iterator[tuple[str, Tensor | None]]:
    """Put together each of `wanted`, in order, from what ranks have in `own`."""
    for whole in wanted:
        mine = own[whole.name] if _has(whole, place.rank) else None
        yield whole.name, _gather(place, whole, mine)


def _gather(place: Place, whole: Whole, mine: Tensor | None) -> Tensor | None:
    senders = _first_holders(whole)
    if place.rank != 0:
        if place.rank in senders:
            assert mine is not None, f"rank {place.rank} lacks its piece of `{whole.name}`"
            _send(place, mine.detach().to(whole.dtype).contiguous(), 0)
        return None
    result = torch.empty(whole.view, dtype=whole.dtype)
    boxes: dict[tuple[tuple[int, int], ...], Tensor] = {}
    done = 0
    for rank, piece in senders.items():
        part = mine if rank == 0 else _receive(place, piece.size, whole.dtype, rank)
        assert part is not None, f"rank 0 lacks its piece of `{whole.name}`"
        if piece.box not in boxes:
            boxes[piece.box] = torch.empty(volume(piece.box), dtype=whole.dtype)
        boxes[piece.box][slice(*piece.span)] = part.detach().reshape(-1).to("cpu", whole.dtype)
        done += piece.size
    if done != math.prod(whole.shape):
        raise InternalError(
            f"ranks hold {done} of the {math.prod(whole.shape)} elements of `{whole.name}`"
        )
    for bounds, values in boxes.items():
        sizes = [stop - start for start, stop in bounds]
        result[tuple(slice(start, stop) for start, stop in bounds)] = values.view(sizes)
    return result.view(whole.shape)


def scatter_full(
    place: Place,
    wanted: list[Whole],
    own: Mapping[str, Tensor],
    found: Mapping[str, Tensor] | None,
) -> None:
    """Give every rank its pieces of `wanted`, in place, from what rank 0 has in `found`."""
    assert (found is not None) == (place.rank == 0), "rank 0 has the tensors, and only rank 0"
    fault = None if found is None else _first_fault(wanted, found)
    fault = from_first(place.job, fault)
    if fault is not None:
        raise SettingsError(fault)
    for whole in wanted:
        if found is None:
            if _has(whole, place.rank):
                target = own[whole.name]
                part = _receive(place, target.numel(), whole.dtype, 0)
                _fill(target, part)
            continue
        tensor = found[whole.name]
        for rank in range(len(whole.pieces)):
            part_of = whole.cut(tensor, rank) if _has(whole, rank) else None
            if part_of is None:
                continue
            if rank == 0:
                _fill(own[whole.name], part_of)
            else:
                _send(place, _on_device(place, part_of.contiguous()), rank)


def _fill(target: Tensor, part: Tensor) -> None:
    target.data.copy_(part.view(target.shape))


def _like(place: Place, stored: StoredParameter, name: str) -> Whole:
    ranks = range(place.groups.mesh.size)
    pieces = tuple(place.storage.piece(stored, rank) for rank in ranks)
    return Whole(name, stored.info.shape, stored.view, _dtype(place, stored), pieces)


def _slot(place: Place, stored: StoredParameter, name: str, slot: str, value: Tensor) -> Whole:
    """A slot shaped like the parameter, or like a row or column of it, or one number for all."""
    ranks = range(place.groups.mesh.size)
    pieces = [place.storage.piece(stored, rank) for rank in ranks]
    shape = tuple(value.shape)
    if slot == "step":
        # One number wherever there is state: of a divided parameter only where there is a piece.
        divided, one = place.storage.is_divided(stored), Piece((), (0, 1))
        steps = (one if p is not None and (p.size or not divided) else None for p in pieces)
        return Whole(name, (), (), value.dtype, tuple(steps))
    if shape == stored.info.shape:
        return Whole(name, shape, stored.view, value.dtype, tuple(pieces))
    dims = dims_of(stored)
    dropped = dims[-1] if slot == "row" else dims[-2]
    kept = [i for axes in dims for i in axes if axes != dropped]
    factors = []
    for piece in pieces:
        box = None if piece is None else tuple(piece.box[i] for i in kept)
        factors.append(None if box is None else Piece(box, (0, volume(box))))
    view = tuple(stored.view[i] for i in kept)
    return Whole(name, shape, view, value.dtype, tuple(factors))


def _has(whole: Whole, rank: int) -> bool:
    piece = whole.pieces[rank]
    return piece is not None and piece.size > 0


def _dtype(place: Place, stored: StoredParameter) -> torch.dtype:
    if stored.info.name in place.storage.frozen:
        return compute_dtype(stored.info.dtype or place.storage.precision)
    return compute_dtype(place.storage.master_dtype(stored))


def _first_holders(whole: Whole) -> dict[int, Piece]:
    """The first rank that has each different piece."""
    first: dict[Piece, int] = {}
    for rank, piece in enumerate(whole.pieces):
        if piece is not None and piece.size > 0:
            first.setdefault(piece, rank)
    return {rank: piece for piece, rank in first.items()}


def _first_fault(wanted: list[Whole], found: Mapping[str, Tensor]) -> str | None:
    names = {whole.name for whole in wanted}
    for whole in wanted:
        if whole.name not in found:
            return f"there is no tensor `{whole.name}`; the spec's model needs it"
        tensor = found[whole.name]
        if tuple(tensor.shape) != whole.shape or tensor.dtype != whole.dtype:
            return (
                f"tensor `{whole.name}` is {_describe(tuple(tensor.shape), tensor.dtype)}; "
                f"the spec's model needs {_describe(whole.shape, whole.dtype)}"
            )
    extra = next((name for name in found if name not in names), None)
    return None if extra is None else f"there is a tensor `{extra}`, which the spec's model has not"


def _describe(shape: tuple[int, ...], dtype: torch.dtype) -> str:
    sizes = " x ".join(map(str, shape)) or "one number"
    return f"{sizes} of {str(dtype).removeprefix('torch.')}"


def _device(place: Place) -> torch.device:
    """Where the job's group can send from."""
    backend = dist.get_backend(place.job.process_group)
    accelerator = (
        torch.accelerator.current_accelerator() if backend not in ("gloo", "giant") else None
    )
    return accelerator or torch.device("cpu")


def _on_device(place: Place, tensor: Tensor) -> Tensor:
    return tensor.to(_device(place))


def _send(place: Place, tensor: Tensor, rank: int) -> None:
    dist.send(_on_device(place, tensor), rank, group=place.job.process_group)


def _receive(place: Place, size: int, dtype: torch.dtype, rank: int) -> Tensor:
    part = torch.empty(size, dtype=dtype, device=_device(place))
    dist.recv(part, rank, group=place.job.process_group)
    return part
