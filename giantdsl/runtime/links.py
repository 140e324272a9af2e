"""Communicators between pipeline ranks: no two links of a rank share one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

from giantdsl.runtime.groups import Group, Groups
from giantdsl.schedule.communication import Link
from giantdsl.schedule.instructions import rank_of

Lane = tuple[bool, int]
"""(upwards, colour)."""


@dataclass(frozen=True, slots=True)
class Links:
    """The process group of each link that begins or ends here.

    NCCL runs what one communicator is given in order, and keeps one for a pair of ranks, or for
    a whole group where that is made eagerly: a send would queue behind a receive that waits for
    another rank, and ranks could wait for each other. So links are spread over lanes, each a
    group of all pipeline ranks, such that a rank has at most one link in a lane.
    """

    pp: Group
    groups: Mapping[Link, dist.ProcessGroup]
    places: Sequence[int]
    """Of each pipeline rank, in these groups."""

    @classmethod
    def make(
        cls, groups: Groups, num_stages: int, device: torch.device, *, timeout_s: float
    ) -> Links:
        """Every rank of the job makes them at the same time. Raises what torch.distributed raises.

        Each link carries a word at once: NCCL connects at first use and blocks both ends
        meanwhile, which must not happen inside a schedule.
        """
        pp = groups.pp
        links = links_of(pp.size, num_stages)
        lanes = {lane: _new_group(groups, timeout_s) for lane in lanes_of(links, pp.size)}
        own = [link for link in links if pp.rank in link]
        used = {link: lanes[lane_of(link, pp.size)] for link in own}
        # All have the same ranks, in an order of torch's choice.
        any_of_them = next(iter(used.values()), None)
        places = [dist.get_group_rank(any_of_them, r) for r in pp.ranks] if any_of_them else []
        made = cls(pp, used, places)
        word = torch.zeros(1, device=device)
        for source, target in own:
            if pp.rank == source:
                made.send(word, target, 0).wait()
            else:
                made.receive(word, source, 0).wait()
        return made

    def send(self, tensor: Tensor, target: int, tag: int) -> dist.Work:
        """Start sending to a pipeline rank. Tags help where the backend has them.

        Straight to the group: what `isend` looks up for each call, these groups never change.
        """
        return self.groups[(self.pp.rank, target)].send([tensor], self.places[target], tag)

    def receive(self, tensor: Tensor, source: int, tag: int) -> dist.Work:
        """Post a receive from a pipeline rank."""
        return self.groups[(source, self.pp.rank)].recv([tensor], self.places[source], tag)


def links_of(num_ranks: int, num_stages: int) -> list[Link]:
    """(source, target) pipeline ranks between which anything goes, in the same order everywhere."""
    found: set[Link] = set()
    for edge in range(num_stages - 1):
        here, there = rank_of(edge, num_ranks), rank_of(edge + 1, num_ranks)
        if here != there:
            found |= {(here, there), (there, here)}
    return sorted(found)


def lanes_of(links: list[Link], num_ranks: int) -> list[Lane]:
    return sorted({lane_of(link, num_ranks) for link in links})


def lane_of(link: Link, num_ranks: int) -> Lane:
    """Neighbouring links of one direction alternate; around an odd ring, the last is a third."""
    source, target = link
    upwards = target == (source + 1) % num_ranks
    lower = source if upwards else target
    closes_odd = lower == num_ranks - 1 and num_ranks % 2 == 1
    return upwards, 2 if closes_odd else lower % 2


def _new_group(groups: Groups, timeout_s: float) -> dist.ProcessGroup:
    """A group of the pipeline ranks of this pipeline; every rank of the job makes all of them.

    `use_local_synchronization` would spare that, but it names a group by how many the rank has.
    """
    own: dist.ProcessGroup | None = None
    for ranks in groups.mesh.groups("pp"):
        made = dist.new_group(list(ranks), timeout=timedelta(seconds=timeout_s))
        if groups.rank in ranks:
            own = made
    assert own is not None, "every rank is in a pipeline"
    return own
