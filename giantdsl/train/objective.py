"""What is minimised: the module's losses, weighed so that microbatches add up to the batch."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn

from giantdsl.errors import SettingsError
from giantdsl.plan import InputInfo, Plan

Shares = Mapping[str, float]


class Objective:
    """The losses of a module as a function of a microbatch, which may come from the CPU.

    `dtype` is what the module computes in. `run`, given forward's arguments, returns the losses
    by name; None means calling the module.
    """

    def __init__(
        self,
        module: nn.Module,
        plan: Plan,
        device: torch.device,
        dtype: torch.dtype,
        run: Callable[..., dict[str, Tensor]] | None = None,
    ) -> None:
        if not plan.losses:
            raise SettingsError(
                f"model `{plan.model}` has no loss, so there is nothing to minimise; "
                "write `loss NAME = …` in `forward`"
            )
        self._module = module
        self._run = run or losses_of(module)
        self._inputs = plan.inputs
        self._keywords = {i.name: i.keyword for i in plan.inputs}
        self._device = device
        # Losses are computed in the type of what only they need.
        self._dtypes = {
            i.name: dtype for i in plan.inputs if i.dtype == "float" and not i.loss_only
        }
        self.takes_noise = "noise" in inspect.signature(module.forward).parameters
        counts = getattr(module, "loss_counts", None)
        self._count_inputs = tuple(inspect.signature(counts).parameters) if counts else ()

    def losses(self, part: Mapping[str, Tensor], noise: Tensor | None = None) -> dict[str, Tensor]:
        """Each loss, a mean over the microbatch. `noise`: int64 [b], or None without dropout.

        Raises SettingsError where the data lacks what every loss needs.
        """
        arguments = {
            self._keywords[name]: tensor.to(self._device, self._dtypes.get(name), non_blocking=True)
            for name, tensor in part.items()
        }
        if noise is not None:
            arguments["noise"] = noise.to(self._device, non_blocking=True)
        losses = self._run(**arguments)
        if not losses:
            absent = ", ".join(f"`{i.name}`" for i in self._inputs if i.name not in part)
            raise SettingsError(f"no loss can be computed: the data does not give {absent}")
        return losses

    def counts(self, part: Mapping[str, Tensor]) -> dict[str, float]:
        """By loss, what its mean divides by; only losses that count valid labels."""
        if not self._count_inputs:
            return {}
        named = {self._keywords[name]: tensor for name, tensor in part.items()}
        given = {name: named[name] for name in self._count_inputs if name in named}
        return {n: float(count) for n, count in self._module.loss_counts(**given).items()}

    def weights(self, part: Mapping[str, Tensor]) -> dict[str, float]:
        """What each loss of a microbatch goes by: its `counts`; the others, under "", by rows."""
        return {"": float(batch_rows(part, self._inputs)), **self.counts(part)}

    def shares(self, parts: Sequence[Mapping[str, Tensor]]) -> list[Shares]:
        """`shares_of` the microbatches of a whole batch. One has the share 1 in all losses."""
        if len(parts) == 1:
            return [{"": 1.0}]
        weights = [self.weights(part) for part in parts]
        return shares_of(weights, total_weights(weights))


def losses_of(module: nn.Module) -> Callable[..., dict[str, Tensor]]:
    """The module as a function from forward's arguments to its losses."""

    def run(**arguments: Tensor) -> dict[str, Tensor]:
        module(**arguments)
        return dict(module.losses)

    return run


def total_weights(weights: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """By name, the sum over microbatches."""
    return {name: sum(w[name] for w in weights) for name in weights[0]}


def shares_of(weights: Sequence[Mapping[str, float]], totals: Mapping[str, float]) -> list[Shares]:
    """Of each microbatch, for each loss, its share of the whole batch (invariant 1).

    `totals` are the weights of the whole batch; where they are 0, no label is valid, so are shares.
    """
    return [{n: w[n] / total if total else 0.0 for n, total in totals.items()} for w in weights]


def weighted(losses: Mapping[str, Tensor], shares: Shares) -> dict[str, Tensor]:
    """Each loss times its microbatch's share."""
    factors = {name: shares.get(name, shares[""]) for name in losses}
    return {n: loss if factors[n] == 1.0 else loss * factors[n] for n, loss in losses.items()}


def batch_axis(info: InputInfo) -> int | None:
    """The position of the axis whose size is the batch's; None for an input without one."""
    return next((i for i, size in enumerate(info.sizes) if size is None), None)


def batch_rows(batch: Mapping[str, Tensor], inputs: Sequence[InputInfo]) -> int:
    """How many samples a batch holds."""
    for info in inputs:
        axis = batch_axis(info)
        if axis is not None and info.name in batch:
            return batch[info.name].shape[axis]
    raise SettingsError("the data gives no input that has the batch axis")


def split_batch(
    batch: Mapping[str, Tensor], inputs: Sequence[InputInfo], microbatch: int | None
) -> list[dict[str, Tensor]]:
    """The batch in microbatches of `microbatch` samples; the last may be smaller."""
    rows = batch_rows(batch, inputs)
    size = rows if microbatch is None else min(microbatch, rows)
    if size == rows:
        return [dict(batch)]
    starts = range(0, rows, size)
    return [rows_of(batch, inputs, start, min(start + size, rows)) for start in starts]


def rows_of(
    batch: Mapping[str, Tensor], inputs: Sequence[InputInfo], start: int, stop: int
) -> dict[str, Tensor]:
    """The samples start..stop of a batch. Inputs without a batch axis stay whole."""
    axes = {info.name: batch_axis(info) for info in inputs}
    return {
        name: tensor
        if (axis := axes.get(name)) is None
        else tensor.narrow(axis, start, stop - start)
        for name, tensor in batch.items()
    }
