"""Zero 3: torch's FSDP2 keeps the parameters divided over dp and gathers them for use."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

from giantdsl.errors import InternalError, SettingsError
from giantdsl.runtime.groups import Group


def shard_fully(
    module: nn.Module,
    units: Sequence[str],
    group: Group,
    *,
    dtype: torch.dtype,
    master: torch.dtype,
    kept_whole: Collection[nn.Parameter],
    reached: Callable[[str], None],
) -> None:
    """Divide the parameters of a module over a group, those of each unit gathered together.

    The module comes in the masters' type and computes in `dtype`. `units` are names of
    submodules, `kept_whole` parameters that FSDP leaves alone. Gradients are sums: by default
    FSDP takes the mean over ranks. `reached(name)` is called when a backward pass on this rank
    brings a gradient: FSDP makes one up otherwise. Raises SettingsError where torch is too old.
    """
    if not hasattr(FSDPModule, "set_reduce_scatter_unused_params"):
        raise SettingsError(
            f"`parallel.zero = 3` needs torch 2.13; this is {torch.__version__}, in which ranks "
            "that reach different parameters get wrong gradients; use `parallel.zero = 2`"
        )
    assert group.process_group is not None, "one rank has nothing to divide"
    device = next(module.parameters()).device
    mesh = DeviceMesh.from_group(group.process_group, device.type)
    policy = MixedPrecisionPolicy(
        param_dtype=None if dtype == master else dtype,
        reduce_dtype=master,
        cast_forward_inputs=False,
    )
    # Before FSDP's hook, which looks for the outputs of the backward pass in what it is shown.
    module.register_forward_hook(_show_losses)
    for prefix in (*units, ""):
        target = module.get_submodule(prefix)
        fully_shard(target, mesh=mesh, mp_policy=policy, ignored_params=set(kept_whole))
        if not isinstance(target, FSDPModule):
            raise InternalError(f"`{type(target).__name__}` was not sharded")
        target.set_gradient_divide_factor(1.0)
        # Without it FSDP asks for a sum with a factor, which only NCCL has.
        target.set_force_sum_reduction_for_comms(True)
        target.register_forward_pre_hook(
            _Watch(f"{prefix}." if prefix else "", kept_whole, reached)
        )
    module.set_reduce_scatter_unused_params(True)  # type: ignore[operator]
    module.register_forward_hook(_hide_losses)


def layers_of(module: nn.Module) -> list[str]:
    """The outermost members of lists of modules: a stage's layers, each gathered at a time.

    A list within a list is no layer, its members are: FSDP shards what has a `forward`. Not those whose parameters are registered elsewhere too: they are used outside the layer.
    """
    names: list[str] = []
    for name, child in module.named_modules():
        if isinstance(child, nn.ModuleList) and not any(name.startswith(f"{n}.") for n in names):
            members = child.named_children()
            names += [f"{name}.{n}" for n, m in members if not isinstance(m, nn.ModuleList)]
    places: dict[int, set[str]] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        owner = next((n for n in names if name.startswith(f"{n}.")), "")
        places.setdefault(id(parameter), set()).add(owner)
    shared = {owner for owners in places.values() if len(owners) > 1 for owner in owners}
    return [name for name in names if name not in shared]


class _Watch:
    """Before a forward pass: hooks on parameters that were gathered for the first time."""

    def __init__(
        self, prefix: str, kept_whole: Collection[nn.Parameter], reached: Callable[[str], None]
    ) -> None:
        self._prefix, self._reached = prefix, reached
        self._seen = {id(parameter) for parameter in kept_whole}

    def __call__(self, module: nn.Module, arguments: object) -> None:
        for name, parameter in module.named_parameters():
            new = id(parameter) not in self._seen and not isinstance(parameter, DTensor)
            if new and parameter.requires_grad:
                self._seen.add(id(parameter))
                self._watch(parameter, self._prefix + name)

    def _watch(self, parameter: nn.Parameter, name: str) -> None:
        def arrived(_: Tensor) -> None:
            self._reached(name)

        parameter.register_post_accumulate_grad_hook(arrived)


class _Returned:
    """What a stage returned, out of FSDP's sight: no backward pass begins there."""

    def __init__(self, value: Any) -> None:
        self.value = value


def _show_losses(module: nn.Module, arguments: object, output: Any) -> Any:
    """A stage leaves its losses in `module.losses`; FSDP hooks what a forward pass returns."""
    losses = getattr(module, "losses", {})
    return (_Returned(output), losses) if losses else (output, losses)


def _hide_losses(module: nn.Module, arguments: object, output: Any) -> Any:
    result, losses = output
    if losses:
        module.losses = losses
    return result.value if isinstance(result, _Returned) else result
