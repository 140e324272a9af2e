"""Where and in which float type a module computes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from giantdsl.errors import SettingsError

PRECISIONS: dict[str, torch.dtype] = {
    "float32": torch.float32,
    "bf16": torch.bfloat16,
    "float64": torch.float64,
}


def pick_device(name: str | None) -> torch.device:
    """The named device, or this machine's accelerator, or the CPU.

    Raises SettingsError where the named device does not exist here.
    """
    accelerator = (
        torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    )
    if name is None:
        return accelerator or torch.device("cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise SettingsError(
            f"`{name}` is not a device; write `cpu` or, for example, `cuda:0`"
        ) from None
    if device.type == "cpu":
        return device
    if accelerator is None or accelerator.type != device.type:
        has = f"only `{accelerator.type}` and `cpu`" if accelerator else "only `cpu`"
        raise SettingsError(f"there is no device `{name}` here; this machine has {has}")
    if device.index is not None and device.index >= torch.accelerator.device_count():
        count = torch.accelerator.device_count()
        raise SettingsError(f"there is no device `{name}` here; this machine has {count}")
    return device


def compute_dtype(precision: str) -> torch.dtype:
    """The float type of activations. Raises SettingsError for an unknown precision."""
    if precision not in PRECISIONS:
        known = ", ".join(f"`{p}`" for p in PRECISIONS)
        raise SettingsError(f"precision `{precision}` is not one of {known}")
    return PRECISIONS[precision]


def master_dtype(precision: str) -> torch.dtype:
    """The float type of weights between steps: never less than float32."""
    dtype = compute_dtype(precision)
    return torch.float32 if dtype.itemsize < torch.float32.itemsize else dtype


def wide_dtype(device: torch.device) -> torch.dtype:
    """The widest float of a device, for sums over a whole batch or model."""
    return torch.float32 if device.type == "mps" else torch.float64


@contextmanager
def deterministic(device: torch.device) -> Iterator[None]:
    """Kernels that give the same bits each time, where the device has them.

    The CPU's kernels do already; accelerators have faster ones that add in the order of arrival,
    with which a resumed run would differ from an uninterrupted one. A kernel that has no such
    form gives torch's warning.
    """
    if device.type == "cpu":
        yield
        return
    before = torch.are_deterministic_algorithms_enabled()
    warn_before = torch.is_deterministic_algorithms_warn_only_enabled()
    fill_before = torch.utils.deterministic.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=warn_before)
        torch.utils.deterministic.fill_uninitialized_memory = fill_before


def peak_memory_bytes(device: torch.device) -> int:
    """Most memory held so far: the device's, or this process's on the CPU."""
    if device.type != "cpu":
        return int(torch.accelerator.max_memory_allocated(device))
    import resource
    import sys

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
