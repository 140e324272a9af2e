"""Over what ranks talk where the user did not say."""

from __future__ import annotations

from dataclasses import dataclass

from giantdsl.backends.giant.build import BuildError, build


@dataclass(frozen=True, slots=True)
class Chosen:
    """A backend's name; `warning` where it is not the one that the machine should have."""

    name: str
    warning: str | None = None


def choose_backend(device: str | None = None) -> Chosen:
    """For tensors on `device`, None: on the accelerator if there is one. Builds `giant` if needed.

    A build that failed is not tried again before something that it needs has changed.
    """
    if device is None or device.startswith("cuda"):
        import torch

        if torch.cuda.is_available():
            return Chosen("nccl")
    try:
        build(again=False)
    except BuildError as error:
        reason = str(error).splitlines()[0]
        return Chosen("gloo", f"{reason}; ranks talk over gloo, which is slower")
    return Chosen("giant")
