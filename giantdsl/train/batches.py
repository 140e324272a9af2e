"""Batches made ahead of the step that needs them, in a thread of their own."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import torch
from torch import Tensor

from giantdsl.errors import SettingsError
from giantdsl.plan import InputInfo
from giantdsl.train.budget import Budget
from giantdsl.train.data_protocol import Batch, Source

_AHEAD = 2


class Batches:
    """The batches after `seen` samples, in order, each made once."""

    def __init__(
        self,
        source: Source,
        inputs: Sequence[InputInfo],
        budget: Budget,
        seen: int,
        pin: bool,
        rows: Callable[[range], Sequence[int]],
    ) -> None:
        self._source = source
        self._inputs = inputs
        self._budget = budget
        self._next = seen
        self._pin = pin
        self._rows = rows
        self._maker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="giantdsl-data")
        self._ahead: deque[tuple[range, Future[dict[str, Tensor]]]] = deque()

    def next(self) -> tuple[range, dict[str, Tensor]]:
        """The sample indices of the next step, and the tensors of those of them that are wanted.

        They are on the CPU. Raises what the source raises.
        """
        while len(self._ahead) < _AHEAD:
            indices = self._budget.indices(self._next)
            self._ahead.append((indices, self._maker.submit(self._make, indices)))
            self._next += len(indices)
        indices, future = self._ahead.popleft()
        return indices, future.result()

    def _make(self, indices: range) -> dict[str, Tensor]:
        wanted = self._rows(indices)
        if not wanted:
            return {}
        batch = select_inputs(self._source.batch(wanted), self._inputs)
        return {n: t.pin_memory() for n, t in batch.items()} if self._pin else batch

    def close(self) -> None:
        self._maker.shutdown(wait=True, cancel_futures=True)


@contextmanager
def batches_ahead(
    source: Source,
    inputs: Sequence[InputInfo],
    budget: Budget,
    seen: int,
    device: torch.device,
    rows: Callable[[range], Sequence[int]] = lambda indices: indices,
) -> Iterator[Batches]:
    """Batches for a run that has seen `seen` samples; the thread ends with the block.

    `rows` says which of a step's samples this process needs.
    """
    batches = Batches(source, inputs, budget, seen, device.type == "cuda", rows)
    try:
        yield batches
    finally:
        batches.close()


def select_inputs(batch: Batch, inputs: Sequence[InputInfo]) -> dict[str, Tensor]:
    """The fields that `forward` takes, by name.

    Raises SettingsError for an input that the data does not give; inputs that only losses need
    may be absent.
    """
    chosen = {info.name: batch[info.name] for info in inputs if info.name in batch}
    for info in inputs:
        if info.name not in chosen and not info.loss_only:
            gives = ", ".join(f"`{name}`" for name in batch) or "nothing"
            raise SettingsError(f"`forward` needs `{info.name}`, but the data gives {gives}")
    return chosen
