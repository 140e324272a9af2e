"""What a rank needs to know: how the job is launched, and what the job itself gets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from giantdsl.errors import InternalError
from giantdsl.train.launch.environment import Rank
from giantdsl.train.launch.failure import Progress

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOptions:
    """How ranks meet and how long is waited for whom, in seconds.

    `timeout_s` bounds every collective. A rank that shows no sign of life for `silent_s` hangs;
    `start_s` bounds the time until all have come. `same` are values that must be equal on all
    ranks, by what they are: a rank with another plan or version ends the job before it begins.
    `check_collectives` compares every collective's kind, shape and dtype over all ranks before
    it runs (slow): a mismatch is an error that names two ranks.
    """

    backend: str = "gloo"
    timeout_s: float = 600.0
    silent_s: float = 60.0
    start_s: float = 300.0
    same: Mapping[str, str] = field(default_factory=dict)
    check_collectives: bool = False


@dataclass(frozen=True, slots=True)
class RankContext:
    """What a job gets besides its argument. `progress` is the job's to write, for messages."""

    rank: Rank
    progress: Progress
    store: Store


@dataclass(frozen=True, slots=True)
class Payload:
    """What every rank of a host gets. `argument` is a pickle of its own: it may need torch, and
    what cannot be unpickled is then an error of the job. `is_alone`: no other host takes part."""

    path: list[str]
    job: str
    argument: bytes
    options: LaunchOptions
    ranks: Mapping[int, Rank]
    is_alone: bool


Job = Callable[[RankContext, Any], Any]


def job_name(job: Job | str) -> str:
    """`module:function`, by which every rank finds it."""
    if isinstance(job, str):
        return job
    module, name = job.__module__, job.__qualname__
    if module == "__main__" or "<" in name:
        raise InternalError(f"ranks cannot import the job `{module}:{name}`")
    return f"{module}:{name}"
