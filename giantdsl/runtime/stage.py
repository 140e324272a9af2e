"""One stage's passes over one microbatch. No messages, no schedule."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from giantdsl.errors import InternalError
from giantdsl.plan import ParallelPlan, StageInfo
from giantdsl.runtime.weight_gradients import WeightGradients, defer_to

Values = dict[str, Tensor]
WeightJobs = list[Callable[[], None]]


@dataclass(frozen=True, slots=True)
class Kept:
    """What a stage keeps of a microbatch until its backward pass, besides autograd's own.

    `received` are the leaves whose gradients go back. `sent` are places in the graph and not the
    tensors: what was sent is freed as soon as it has left, unless an operation saved it.
    """

    received: Values
    sent: dict[str, GradientEdge]
    total: Tensor | None


@dataclass(frozen=True, slots=True)
class Passed:
    """What a forward pass gives: values for the next stage, weighted loss terms, what is kept."""

    sent: Values
    losses: Values
    kept: Kept | None


class StageRunner:
    """Calls one stage's module and differentiates it.

    With `split`, `backward_inputs` puts the weight gradients of its `Linear` layers off.
    """

    def __init__(
        self,
        plan: ParallelPlan,
        info: StageInfo,
        module: nn.Module,
        *,
        dtype: torch.dtype,
        device: torch.device,
        split: bool,
    ) -> None:
        self.info, self.module = info, module
        self._dtype, self._device = dtype, device
        self._floats = {i.name for i in plan.model.inputs if i.dtype == "float" and not i.loss_only}
        self._keywords = dict(info.renamed)
        self._with_gradient = {value.name for value in plan.values if value.grad}
        self._store = WeightGradients() if split else None
        defer_to(module, self._store)

    def forward(
        self,
        part: Mapping[str, Tensor],
        received: Values,
        noise: Tensor | None,
        share: Mapping[str, float],
        *,
        train: bool,
    ) -> Passed:
        """Raises InternalError where the module does not return what the plan says."""
        leaves = {n: t for n, t in received.items() if train and n in self._with_gradient}
        for tensor in leaves.values():
            tensor.requires_grad_()
        taken = {name: self._input(part, name) for name in self.info.inputs} | received
        arguments = {self._keywords.get(name, name): value for name, value in taken.items()}
        if self.info.draws and noise is not None:
            arguments["noise"] = noise.to(self._device, non_blocking=True)
        made = self._made(self.module(**arguments))
        total, losses = self._weigh(share)
        sent = {n: made[n] if n in made else received[n] for n in self.info.sends}
        kept = None
        if train:
            edges = {
                n: get_gradient_edge(t)
                for n, t in sent.items()
                if n in self._with_gradient and t.requires_grad
            }
            kept = Kept(leaves, edges, total)
        # Detached: the next stage differentiates for itself.
        return Passed({n: t.detach() for n, t in sent.items()}, losses, kept)

    def backward(self, kept: Kept, gradients: Mapping[str, Tensor]) -> Values:
        """Add to the gradients of the weights; returns those of what was received.

        `gradients` are those of what was sent. What was received and not used gets zeros.
        """
        roots: list[Tensor | GradientEdge] = []
        given: list[Tensor | None] = []
        if kept.total is not None and kept.total.requires_grad:
            roots.append(kept.total)
            given.append(None)
        for name, edge in kept.sent.items():
            roots.append(edge)
            given.append(gradients[name])
        if roots:
            torch.autograd.backward(roots, given)  # type: ignore[arg-type]
        return {
            n: torch.zeros_like(t) if t.grad is None else t.grad for n, t in kept.received.items()
        }

    def backward_inputs(
        self, kept: Kept, gradients: Mapping[str, Tensor]
    ) -> tuple[Values, WeightJobs]:
        """The same, but gradients of `Linear` weights wait in the returned jobs."""
        assert self._store is not None, "a schedule that splits backward passes"
        return self.backward(kept, gradients), self._store.take()

    def _input(self, part: Mapping[str, Tensor], name: str) -> Tensor | None:
        """None where the batch lacks it: it is for losses only then."""
        tensor = part.get(name)
        if tensor is None:
            return None
        dtype = self._dtype if name in self._floats else None
        return tensor.to(self._device, dtype, non_blocking=True)

    def _made(self, results: Sequence[Tensor]) -> Values:
        wanted = len(self.info.makes) + len(self.info.outputs)
        if not isinstance(results, tuple) or len(results) != wanted:
            found = f"{len(results)} values" if isinstance(results, tuple) else "no tuple"
            raise InternalError(f"stage {self.info.index} returned {found}, not {wanted} values")
        return dict(zip(self.info.makes, results, strict=False))

    def _weigh(self, share: Mapping[str, float]) -> tuple[Tensor | None, Values]:
        """The sum to differentiate, and each term of it without its graph."""
        total: Tensor | None = None
        losses: Values = {}
        terms = cast(Mapping[str, Tensor], self.module.losses)
        for name, term in terms.items():
            weighted = term * (share[name] if name in share else share[""])
            total = weighted if total is None else total + weighted
            losses[name] = weighted.detach()
        if terms:
            # The terms hold the graph, and with it every activation of this microbatch.
            self.module.losses = {}  # type: ignore[assignment]
        return total, losses
