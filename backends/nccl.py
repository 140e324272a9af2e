"""The hierarchy of the `giant` backend on accelerators, composed of NCCL's own groups.

Each byte crosses a host's link as few times as can be: what ranks of a host have in common is reduced
or gathered inside the host first, and only ranks with the same place on their hosts (a rail) talk
between hosts, all rails at once.

    dist.init_process_group("cpu:giant,cuda:nccl")
    torch.cuda.set_device(local_rank)
    hierarchy = Hierarchy.make()
    hierarchy.all_reduce(gradient)             # a CUDA tensor: NCCL carries it

NCCL itself chooses well on one host and on fast fabrics; this is for hosts that plain links join. It
works over any backend of torch.distributed that has the flat collectives. Calls wait as NCCL's
do: on the current stream. Every rank of the world makes the hierarchy and calls it in the same order.
Gradients do not pass through.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import ReduceOp

_AVERAGE = ReduceOp.AVG
_REDUCTIONS = (ReduceOp.SUM, ReduceOp.AVG, ReduceOp.MAX, ReduceOp.MIN, ReduceOp.PRODUCT)


@dataclass(frozen=True, slots=True)
class HostGrid:
    """Ranks by host and place: `rows[h][l]` is rank l of host h. Hosts are in order of their lowest
    rank and all have as many ranks."""

    rows: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, identities: Sequence[str]) -> Self | None:
        """One identity for each rank, in rank order; None where hosts are not of one size."""
        ranks: dict[str, list[int]] = {}
        for rank, identity in enumerate(identities):
            ranks.setdefault(identity, []).append(rank)
        rows = tuple(tuple(each) for each in ranks.values())
        return cls(rows) if len({len(row) for row in rows}) == 1 else None

    @property
    def num_hosts(self) -> int:
        return len(self.rows)

    @property
    def local_size(self) -> int:
        return len(self.rows[0])

    @property
    def rails(self) -> list[list[int]]:
        """Ranks of the same place on all hosts, ascending: torch's groups sort theirs."""
        return [sorted(rail) for rail in zip(*self.rows, strict=True)]

    @property
    def by_rail(self) -> list[int]:
        """Ranks in order of place, then as their rail has them."""
        return [rank for rail in self.rails for rank in rail]

    def by_host(self, place: int) -> list[int]:
        """Ranks in order of host, as the rail of `place` has the hosts, then of place."""
        hosts = (self.position(rank)[0] for rank in self.rails[place])
        return [rank for host in hosts for rank in self.rows[host]]

    def position(self, rank: int) -> tuple[int, int]:
        """Host and place of a rank."""
        return next((h, row.index(rank)) for h, row in enumerate(self.rows) if rank in row)


class Hierarchy:
    """Collectives of the whole world, in two levels.

    Where hosts have different numbers of ranks, there is one host, or each has one rank, all calls fall
    back on the flat collectives: `is_flat` says so. Tensors are contiguous; results are on all ranks
    what the flat collectives give, up to rounding of floats.
    """

    def __init__(
        self, grid: HostGrid | None, inside: dist.ProcessGroup, rail: dist.ProcessGroup
    ) -> None:
        """`inside` are the ranks of this host, `rail` those of this place, ascending."""
        self.grid, self.inside, self.rail = grid, inside, rail

    @classmethod
    def make(cls, identities: Sequence[str] | None = None, backend: str | None = None) -> Self:
        """Collective over the world. `identities` name each rank's host, the same list on every
        rank; without them ranks tell each other. `backend` None: the default group's.

        Raises ValueError for a list that does not name every rank's host.
        """
        size, rank = dist.get_world_size(), dist.get_rank()
        names = _exchanged_identities() if identities is None else list(identities)
        if len(names) != size:
            raise ValueError(f"{len(names)} host identities for {size} ranks")
        grid = HostGrid.of(names)
        if grid is None or 1 in (grid.num_hosts, grid.local_size):
            world = dist.group.WORLD
            assert world is not None, "init_process_group comes first"
            return cls(None, world, world)
        insides = [dist.new_group(list(row), backend=backend) for row in grid.rows]
        between = [dist.new_group(rail, backend=backend) for rail in grid.rails]
        host, place = grid.position(rank)
        return cls(grid, insides[host], between[place])

    @property
    def is_flat(self) -> bool:
        return self.grid is None

    def all_reduce(self, tensor: Tensor, op: ReduceOp.RedOpType = ReduceOp.SUM) -> None:
        """In place. A host's link carries 2 (H-1)/H of the tensor in each direction."""
        _check(op, tensor)
        if self.grid is None:
            dist.all_reduce(tensor, _summed(op))
        else:
            padded = _padded(tensor.view(-1), self.grid.local_size)
            shard = padded.new_empty(padded.numel() // self.grid.local_size)
            dist.reduce_scatter_tensor(shard, padded, _summed(op), group=self.inside)
            dist.all_reduce(shard, _summed(op), group=self.rail)
            dist.all_gather_into_tensor(padded, shard, group=self.inside)
            if padded.data_ptr() != tensor.data_ptr():
                tensor.view(-1).copy_(padded[: tensor.numel()])
        _finish(op, tensor)

    def reduce_scatter_tensor(
        self, output: Tensor, tensor: Tensor, op: ReduceOp.RedOpType = ReduceOp.SUM
    ) -> None:
        """`tensor` has a block of output's size for each rank. A link carries (H-1)/H of it."""
        _check(op, tensor)
        _check_blocks(tensor, output)
        if self.grid is None:
            dist.reduce_scatter_tensor(output.view(-1), tensor.view(-1), _summed(op))
        else:
            blocks = _rows(tensor, self.grid.by_rail)
            mine = blocks.new_empty(self.grid.num_hosts, output.numel())
            dist.reduce_scatter_tensor(
                mine.view(-1), blocks.view(-1), _summed(op), group=self.inside
            )
            dist.reduce_scatter_tensor(output.view(-1), mine.view(-1), _summed(op), group=self.rail)
        _finish(op, output)

    def all_gather_into_tensor(self, output: Tensor, tensor: Tensor) -> None:
        """`output` gets a block of tensor's size from each rank. A link carries (H-1)/H of it."""
        _check_blocks(output, tensor)
        if self.grid is None:
            dist.all_gather_into_tensor(output.view(-1), tensor.view(-1))
            return
        of_rail = tensor.new_empty(self.grid.num_hosts * tensor.numel())
        dist.all_gather_into_tensor(of_rail, tensor.view(-1), group=self.rail)
        blocks = tensor.new_empty(dist.get_world_size(), tensor.numel())
        dist.all_gather_into_tensor(blocks.view(-1), of_rail, group=self.inside)
        _scatter_rows(output, self.grid.by_rail, blocks)

    def broadcast(self, tensor: Tensor, src: int) -> None:
        """From the rank `src`, in place. The tensor enters every other host once."""
        if self.grid is None:
            dist.broadcast(tensor, src)
            return
        host, place = self.grid.position(dist.get_rank())
        root_host, _ = self.grid.position(src)
        padded = _padded(tensor.view(-1), self.grid.local_size)
        parts = list(padded.chunk(self.grid.local_size))
        part = torch.empty_like(parts[place])
        if host == root_host:
            is_root = dist.get_rank() == src
            dist.scatter(part, parts if is_root else None, src, group=self.inside)
        dist.broadcast(part, self.grid.rows[root_host][place], group=self.rail)
        dist.all_gather_into_tensor(padded, part, group=self.inside)
        if padded.data_ptr() != tensor.data_ptr():
            tensor.view(-1).copy_(padded[: tensor.numel()])

    def all_to_all_single(self, output: Tensor, tensor: Tensor) -> None:
        """Equal blocks. A link carries what it must, in messages as large as L blocks."""
        size = dist.get_world_size()
        if tensor.numel() != output.numel() or tensor.numel() % size:
            raise ValueError(
                f"{tensor.numel()} and {output.numel()} elements are not {size} equal blocks"
            )
        if self.grid is None:
            dist.all_to_all_single(output.view(-1), tensor.view(-1))
            return
        # To the rank of this host that has the receiver's place, then along the rail.
        hosts, local = self.grid.num_hosts, self.grid.local_size
        leaving = _rows(tensor, self.grid.by_rail)
        held = torch.empty_like(leaving)
        dist.all_to_all_single(held.view(-1), leaving.view(-1), group=self.inside)
        leaving = held.view(local, hosts, -1).transpose(0, 1).contiguous()
        arrived = torch.empty_like(leaving)
        dist.all_to_all_single(arrived.view(-1), leaving.view(-1), group=self.rail)
        _, place = self.grid.position(dist.get_rank())
        _scatter_rows(output, self.grid.by_host(place), arrived.view(size, -1))


def _exchanged_identities() -> list[str]:
    names: list[str] = [""] * dist.get_world_size()
    dist.all_gather_object(names, _own_identity())
    return names


def _own_identity() -> str:
    """As csrc names hosts: boots differ between machines, network namespaces between containers."""
    given = os.environ.get("GIANT_HOST_ID")
    if given:
        return given
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}/{os.stat('/proc/self/ns/net').st_ino}"


def _check(op: ReduceOp.RedOpType, tensor: Tensor) -> None:
    if op not in _REDUCTIONS:
        raise ValueError(
            f"{op} is not reduced in two levels; there are SUM, AVG, MAX, MIN, PRODUCT"
        )
    if op == _AVERAGE and not tensor.is_floating_point():
        raise ValueError(f"the average of {tensor.dtype} is not a {tensor.dtype}")


def _check_blocks(whole: Tensor, block: Tensor) -> None:
    size = dist.get_world_size()
    if whole.numel() != size * block.numel():
        raise ValueError(
            f"{whole.numel()} elements are not {size} blocks, one a rank, of {block.numel()}"
        )


def _summed(op: ReduceOp.RedOpType) -> ReduceOp.RedOpType:
    """An average is a sum, divided once at the end: not every backend has it."""
    return ReduceOp.SUM if op == _AVERAGE else op


def _finish(op: ReduceOp.RedOpType, result: Tensor) -> None:
    if op == _AVERAGE:
        result.div_(dist.get_world_size())


def _padded(flat: Tensor, parts: int) -> Tensor:
    """The same memory where it divides by `parts`, else a copy with zeros at its end."""
    missing = -flat.numel() % parts
    return torch.nn.functional.pad(flat, (0, missing)) if missing else flat


def _rows(tensor: Tensor, order: Sequence[int]) -> Tensor:
    """A block of `tensor` a rank, in another order of ranks."""
    return tensor.view(dist.get_world_size(), -1)[list(order)]


def _scatter_rows(output: Tensor, order: Sequence[int], rows: Tensor) -> None:
    """Row i is the block of rank `order[i]`."""
    output.view(rows.shape)[list(order)] = rows
