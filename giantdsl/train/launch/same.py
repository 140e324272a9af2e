"""Values that must be equal on all ranks: a difference is an error that names the ranks."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from giantdsl.errors import SettingsError

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

    from giantdsl.runtime.groups import Group

_MAX_SHOWN = 80


def check_same(group: Group, what: str, value: str) -> None:
    """Raises SettingsError on every rank of `group` unless all call with an equal `value`.

    Collective: every rank of the group calls it, at the same point of its program.
    """
    if group.process_group is None:
        return
    import torch.distributed as dist

    found: list[str] = [""] * group.size
    dist.all_gather_object(found, _short(value), group=group.process_group)
    _compare(what, dict(zip(group.ranks, found, strict=True)))


def check_same_in_store(
    store: Store, rank: int, world: int, values: Mapping[str, str], *, timeout_s: float
) -> None:
    """The same over the store, for all ranks, before there is a process group.

    Raises SettingsError on all of them where a value differs.
    """
    import torch.distributed as dist

    described = {what: _short(value) for what, value in values.items()}
    store.set(f"same/{rank}", json.dumps(described))
    keys = [f"same/{other}" for other in range(world)]
    try:
        store.wait(keys, timedelta(seconds=timeout_s))
    except dist.DistStoreError:
        missing = [other for other, key in enumerate(keys) if not store.check([key])]
        raise SettingsError(
            f"{_ranks(missing)} did not come within {timeout_s:.0f} s; {world} ranks are needed"
        ) from None
    found = [json.loads(text) for text in store.multi_get(keys)]
    for what in dict.fromkeys(name for values in found for name in values):
        _compare(what, {other: values.get(what, "(none)") for other, values in enumerate(found)})


def _compare(what: str, values: Mapping[int, str]) -> None:
    holders: dict[str, list[int]] = defaultdict(list)
    for rank, value in values.items():
        holders[value].append(rank)
    if len(holders) > 1:
        parts = [f"{value} on {_ranks(ranks)}" for value, ranks in holders.items()]
        raise SettingsError(f"{what} differs between ranks: {', '.join(parts)}")


def _short(value: str) -> str:
    """The value, or its start and a hash: what is compared must stay small."""
    if len(value) <= _MAX_SHOWN:
        return value
    digest = hashlib.sha256(value.encode()).hexdigest()[:16]
    return f"{value[: _MAX_SHOWN - 20]}… ({digest})"


def _ranks(ranks: Sequence[int]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    shown = ", ".join(map(str, ranks[:8]))
    return f"ranks {shown}" + (f" and {len(ranks) - 8} more" if len(ranks) > 8 else "")
