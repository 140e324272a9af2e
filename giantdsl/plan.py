"""What the driver hands to the runtime: plain data, no tree, no IR."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class InputInfo:
    """A tensor `forward` takes.

    `sizes` follow `axes`; None where the batch gives the size. `dtype` is float, int, bool, or
    the name of the axis the integers index, whose extent is then `num_classes`. `seq` are the
    positions in `axes` that are sequence axes (a shorter sequence than `sizes` is legal there).
    """

    name: str
    axes: tuple[str, ...]
    sizes: tuple[int | None, ...]
    dtype: str
    num_classes: int | None
    seq: tuple[int, ...]
    loss_only: bool


@dataclass(frozen=True, slots=True)
class ParameterInfo:
    """A logical parameter. `lr` multiplies the learning rate; `decay` says if weight decay applies."""

    name: str
    shape: tuple[int, ...]
    lr: float
    decay: bool
    dtype: str | None


@dataclass(frozen=True, slots=True)
class Plan:
    """One model ready to run. `source` is the emitted plain module, `class_name` its class.

    `losses` are the names of the loss terms in order, `counted` those that `loss_counts` returns.
    `recompute` are names of block classes in `source` whose activations are recomputed; `flops`
    counts one sample forward (multiply and add are two), `tokens_per_sample` the positions of
    the longest sequence axis among the index inputs (1 where there is none). `decode_source` is
    the same model, the same class and parameter names, taking a `Cache` of earlier tokens after
    its tokens; "" for a model that does not continue a sequence.
    """

    model: str
    source: str
    source_name: str
    class_name: str
    inputs: tuple[InputInfo, ...]
    output_names: tuple[str, ...]
    parameters: tuple[ParameterInfo, ...]
    num_parameters: int
    losses: tuple[str, ...]
    counted: tuple[str, ...]
    recompute: tuple[str, ...]
    flops: int
    tokens_per_sample: int
    decode_source: str = ""
