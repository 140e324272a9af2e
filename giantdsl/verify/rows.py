"""What `verify` is asked and what it answers. Plain data, no torch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Layout:
    """One way to run a model. `section` is its `parallel` section as text, `label` a short name.

    `batch` and `microbatch` are in samples, `microbatch` of a data rank; `layers` is the least
    number of iterations that every loop of `forward` needs.
    """

    label: str
    section: str
    ranks: int
    batch: int
    microbatch: int
    layers: int


@dataclass(frozen=True, slots=True)
class Row:
    """How a layout compares with one process.

    `worst` names the tensor with the largest relative `error`, `first` the first one above the
    `bound` in the order of computing, `place` where it stands in the spec. `message` is set where
    the run itself failed.
    """

    layout: str
    ranks: int
    worst: str
    error: float
    bound: float
    ok: bool
    first: str | None
    place: str | None
    seconds: float
    message: str | None
