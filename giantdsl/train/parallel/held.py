"""The parameters that a rank holds, by logical name, and their gradients of one step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from giantdsl.errors import InternalError
from giantdsl.plan import StoredParameter


@dataclass(slots=True)
class Held:
    """A parameter in this rank's modules. `live` is what the stages compute with.

    Gradients add up in `dtype`, that of the masters: in `live.grad` where the types agree.
    `reached_by`, for what FSDP divides: the names that this rank's backward passes reached.
    """

    stored: StoredParameter
    live: nn.Parameter
    dtype: torch.dtype
    reached_by: set[str] | None = None
    wide: Tensor | None = None

    @property
    def name(self) -> str:
        return self.stored.info.name

    @property
    def local(self) -> Tensor:
        """The values on this rank, sharing memory: of a sharded parameter its own rows."""
        return local_tensor(self.live.detach())

    def gradient(self) -> Tensor | None:
        """What was added up on this rank; None where there is none."""
        found = self.live.grad if self.wide is None else self.wide
        return found if found is None or self.reached_by is None else local_tensor(found)

    @property
    def is_made_up(self) -> bool:
        """Is its gradient FSDP's, of zeros? No backward pass on this rank reached it then."""
        return self.reached_by is not None and self.name not in self.reached_by

    def clear(self) -> None:
        self.wide = None
        self.live.grad = None
        if self.reached_by is not None:
            self.reached_by.discard(self.name)

    def widen(self) -> None:
        """Move a new gradient from the module's type to that of the masters."""
        if self.live.dtype == self.dtype or self.live.grad is None:
            return
        if self.wide is None:
            self.wide = self.live.grad.to(self.dtype)
        else:
            self.wide.add_(self.live.grad)
        self.live.grad = None


def local_tensor(tensor: Tensor) -> Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def find_parameters(
    modules: Mapping[int, nn.Module], parameters: Sequence[StoredParameter]
) -> dict[str, nn.Parameter]:
    """This rank's parameters by logical name, in the plan's order.

    Where several of its stages hold one, their modules share it afterwards: a tied weight is
    there once on each rank. Raises InternalError where a module lacks a parameter of the plan.
    """
    owned = {stage: dict(module.named_parameters()) for stage, module in modules.items()}
    found: dict[str, nn.Parameter] = {}
    for stored in parameters:
        name = stored.info.name
        for stage in stored.stages:
            if stage not in modules:
                continue
            if name not in owned[stage]:
                raise InternalError(f"stage {stage} has no parameter `{name}`")
            if name not in found:
                found[name] = owned[stage][name]
            elif owned[stage][name] is not found[name]:
                _replace(modules[stage], owned[stage][name], found[name])
    return found


def _replace(module: nn.Module, old: nn.Parameter, new: nn.Parameter) -> None:
    for child in module.modules():
        for leaf, parameter in list(child.named_parameters(recurse=False, remove_duplicate=False)):
            if parameter is old:
                setattr(child, leaf, new)


def watch(held: Held, ready: Callable[[str], None] | None) -> None:
    """After each backward pass that brought a gradient, widen it and call `ready(name)`.

    Without hooks where neither is needed: they are called in the midst of backward passes.
    """
    if ready is None and held.live.dtype == held.dtype:
        return

    def arrived(_: Tensor) -> None:
        held.widen()
        if ready is not None:
            ready(held.name)

    held.live.register_post_accumulate_grad_hook(arrived)
