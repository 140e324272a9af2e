"""What each microbatch is of the whole batch, added up while the forward pass already runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch
import torch.distributed as dist

from giantdsl.runtime.groups import Group
from giantdsl.train.objective import total_weights

Weights = Mapping[str, float]
Shares = Mapping[str, float]


class BatchShares:
    """The shares of this rank's microbatches in a batch that all ranks of a group bring together.

    `weights` are those of each microbatch, by the same names on every rank. All ranks of the group
    make it at the same time, and call `wait` at the latest when the batch is over.
    """

    def __init__(self, weights: Sequence[Weights], group: Group, device: torch.device) -> None:
        self.each: list[Shares] = [_Pending(of_one, self) for of_one in weights]
        own = total_weights(weights)
        self._names = list(own)
        self._sums = torch.tensor(list(own.values()), dtype=torch.float64, device=device)
        self._work: dist.Work | None = None
        if group.process_group is not None:
            self._work = dist.all_reduce(self._sums, group=group.process_group, async_op=True)
        self._totals: Weights | None = None

    def wait(self) -> Weights:
        """The weights of the whole batch."""
        if self._totals is None:
            if self._work is not None:
                self._work.wait()
            self._totals = dict(zip(self._names, self._sums.tolist(), strict=True))
        return self._totals


class _Pending(Mapping[str, float]):
    """A microbatch's shares: the first look waits for the whole batch's weights.

    That is when losses are weighed, after a forward pass: ranks that begin a step at different
    times do not wait for each other first.
    """

    def __init__(self, weights: Weights, batch: BatchShares) -> None:
        self._weights, self._batch = weights, batch

    def __getitem__(self, name: str) -> float:
        weight = self._weights[name]
        total = self._batch.wait()[name]
        return weight / total if total else 0.0

    def __iter__(self) -> Iterator[str]:
        return iter(self._weights)

    def __len__(self) -> int:
        return len(self._weights)
