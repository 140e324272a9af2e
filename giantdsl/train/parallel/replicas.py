"""Are the copies of each parameter still the same on all ranks (invariants 4 and 5)?"""

from __future__ import annotations

import hashlib

import torch
import torch.distributed as dist
from torch import Tensor

from giantdsl.errors import RuntimeFault
from giantdsl.train.parallel.optimizer import ParallelOptimizer


def check_replicas(optimizer: ParallelOptimizer) -> None:
    """Compare a digest of every parameter with that of the first rank which holds the same.

    Collective. Raises RuntimeFault on every rank, naming the first parameter that differs and
    the two ranks.
    """
    place = optimizer.place
    if place.job.process_group is None:
        return
    values = optimizer.live_tensors()
    parameters = place.plan.parameters
    own = torch.tensor(
        [_digest(values[p.info.name]) if p.info.name in values else 0 for p in parameters],
        device=optimizer.device,
    )
    found = [torch.empty_like(own) for _ in range(place.job.size)]
    dist.all_gather(found, own, group=place.job.process_group)
    digests = torch.stack(found).tolist()
    mesh, ownership = place.groups.mesh, place.storage.ownership
    for index, stored in enumerate(parameters):
        first: dict[object, int] = {}
        for rank in range(mesh.size):
            at = mesh.coordinate(rank)
            if not ownership.holds(stored, at):
                continue
            held = place.storage.held(stored, at)
            other = first.setdefault(held, rank)
            if digests[rank][index] != digests[other][index]:
                raise RuntimeFault(
                    f"the copies of `{stored.info.name}` on rank {other} and rank {rank} differ"
                )


def _digest(tensor: Tensor) -> int:
    """63 bits of the bytes' SHA-256."""
    data = tensor.detach().contiguous().view(-1).view(torch.uint8).cpu().numpy().tobytes()
    return int.from_bytes(hashlib.sha256(data).digest()[:8], "little") >> 1
