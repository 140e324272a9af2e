"""Emitted source to a module on a device."""

from __future__ import annotations

import itertools
import linecache
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor, nn

from giantdsl.errors import InternalError, SettingsError
from giantdsl.plan import Plan
from giantdsl.runtime.device import compute_dtype

# Names in sys.modules are one namespace for the whole process, so the counter is too.
_serial = itertools.count(1)


def load_source(source: str, source_name: str, *, search_path: Path | None = None) -> ModuleType:
    """Execute emitted source as a real module.

    It stands in `sys.modules` and `linecache`, so that tracebacks, debuggers, `inspect` and
    torch.compile see its lines. `search_path` is where modules of externs are looked for.
    Raises SettingsError where a module that the source imports does not exist.
    """
    name = f"giantdsl_emitted_{next(_serial)}"
    filename = f"<{source_name} #{name.rpartition('_')[2]}>"
    module = ModuleType(name)
    module.__file__ = filename
    # No modification time: linecache then never drops the entry.
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    sys.modules[name] = module
    try:
        with _import_from(search_path):
            exec(compile(source, filename, "exec"), module.__dict__)
    except ModuleNotFoundError as error:
        del sys.modules[name]
        where = f", nor in {search_path}" if search_path else ""
        raise SettingsError(
            f"the model needs the Python module `{error.name}`, which is not installed{where}"
        ) from error
    except BaseException:
        del sys.modules[name]
        raise
    return module


@contextmanager
def _import_from(directory: Path | None) -> Iterator[None]:
    if directory is None:
        yield
        return
    entry = str(directory)
    sys.path.insert(0, entry)
    try:
        yield
    finally:
        sys.path.remove(entry)


def build_module(
    plan: Plan,
    device: torch.device | str = "cpu",
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
    *,
    search_path: Path | None = None,
) -> nn.Module:
    """The plan's module on `device`, its floats in `dtype`, its values from `seed`.

    Memory is allocated once, on the device, and written once. Raises InternalError where the
    module's parameters are not those of the plan or one was left without a value.
    """
    namespace = load_source(plan.source, plan.source_name, search_path=search_path)
    model_class = getattr(namespace, plan.class_name)
    with torch.device("meta"):
        module: nn.Module = model_class()
    _check_parameters(module, plan)
    lower_module(module, plan, dtype)
    allocate(module, torch.device(device))
    module.init_weights(seed)
    check_initialised(module)
    return module


def lower_module(module: nn.Module, plan: Plan, dtype: torch.dtype) -> None:
    """Turn the module's floats into `dtype`, except parameters whose dtype the spec says."""
    fixed = {p.name: compute_dtype(p.dtype) for p in plan.parameters if p.dtype is not None}
    for name, tensor in _all_tensors(module):
        if tensor.is_floating_point():
            tensor.data = tensor.data.to(fixed.get(name, dtype))


def allocate(module: nn.Module, device: torch.device) -> None:
    """Empty storage for every tensor. What was one tensor under two names stays one."""
    names: dict[int, list[str]] = {}
    for name, tensor in _all_tensors(module):
        names.setdefault(id(tensor), []).append(name)
    module.to_empty(device=device)
    for first, *others in names.values():
        for other in others:
            set_parameter(module, other, _tensor(module, first))
    with torch.no_grad():
        for _, tensor in _all_tensors(module):
            if tensor.is_floating_point():
                tensor.fill_(torch.nan)


def set_parameter(module: nn.Module, name: str, tensor: Tensor) -> None:
    """Put a tensor in the place of the module's parameter or buffer `name`."""
    owner, _, leaf = name.rpartition(".")
    setattr(module.get_submodule(owner), leaf, tensor)


def _all_tensors(module: nn.Module) -> list[tuple[str, Tensor]]:
    return [
        *module.named_parameters(remove_duplicate=False),
        *module.named_buffers(remove_duplicate=False),
    ]


def _tensor(module: nn.Module, name: str) -> Tensor:
    owner, _, leaf = name.rpartition(".")
    tensor: Tensor = getattr(module.get_submodule(owner), leaf)
    return tensor


def _check_parameters(module: nn.Module, plan: Plan) -> None:
    found = {name: tuple(p.shape) for name, p in module.named_parameters()}
    wanted = {p.name: p.shape for p in plan.parameters}
    for name in wanted.keys() | found.keys():
        if wanted.get(name) != found.get(name):
            raise InternalError(
                f"parameter `{name}` is {wanted.get(name, 'absent')} in the plan"
                f" but {found.get(name, 'absent')} in the emitted module"
            )


def check_initialised(module: nn.Module) -> None:
    for name, tensor in _all_tensors(module):
        if tensor.is_floating_point() and bool(tensor.isnan().any()):
            raise InternalError(f"`init_weights` gave `{name}` no value")
