"""An optimizer over what one of many ranks holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from giantdsl.attrs import Config
from giantdsl.plan import ParallelPlan, StoredParameter
from giantdsl.runtime.device import compute_dtype, master_dtype
from giantdsl.runtime.groups import Group, Groups
from giantdsl.runtime.loader import lower_module
from giantdsl.train.adafactor import Means
from giantdsl.train.optim import frozen_names, make_inner, update
from giantdsl.train.parallel.buckets import BUCKET_BYTES, Storage
from giantdsl.train.parallel.fully_sharded import layers_of, shard_fully
from giantdsl.train.parallel.held import Held, find_parameters, watch
from giantdsl.train.parallel.legality import check_storage
from giantdsl.train.parallel.means import mean_axes, sliced_means
from giantdsl.train.parallel.ownership import Ownership
from giantdsl.train.parallel.reducer import Reducer, Summed
from giantdsl.train.parallel.ties import TieGroups
from giantdsl.train.parallel.verdict import Share, Verdict, judge
from giantdsl.train.parallel.weights import DividedWeights, JoinedWeights, Weights, WholeWeights


@dataclass(frozen=True, slots=True)
class Place:
    """Where a rank stands: the plan, its groups, and how everything is stored."""

    plan: ParallelPlan
    groups: Groups
    storage: Storage

    @property
    def rank(self) -> int:
        return self.groups.rank

    @property
    def at(self) -> dict[str, int]:
        return self.groups.mesh.coordinate(self.groups.rank)

    @property
    def job(self) -> Group:
        """All ranks."""
        return self.groups.over(*self.groups.mesh.axes)


class ParallelOptimizer:
    """One of its kind on every rank; all make the same calls in the same order.

    A step: `zero_grad`; backward passes, `arm(stage)` before the last of each stage and
    `stage_done(stage)` after it; `finish`; `judge`; then, unless something is not finite, `clip` and `step`. What this rank has of a
    parameter is a piece: see `Storage.piece`.
    """

    def __init__(
        self,
        kind: Config,
        place: Place,
        held: Mapping[str, Held],
        weights: Weights,
        reducer: Reducer,
    ) -> None:
        self.kind, self.place = kind, place
        self._held, self._weights, self._reducer = held, weights, reducer
        self._summed: list[Summed] = []
        self._gradients: dict[str, Tensor] = {}
        storage = place.storage
        self._counts = {
            name: storage.ownership.counts(h.stored, place.at, storage.counted_over(h.stored))
            for name, h in held.items()
        }
        """Does this rank add a parameter's elements to the norm?"""
        self.reached: frozenset[str] = frozenset()
        trained = [h for n, h in held.items() if n in weights.masters]
        ownership, groups = place.storage.ownership, place.groups
        means: dict[Tensor, Means] = {
            weights.masters[h.name]: found
            for h in trained
            if (found := sliced_means(h.stored, ownership, groups)) is not None
        }
        infos = [h.stored.info for h in trained]
        masters = [weights.masters[h.name] for h in trained]
        # A stage, or an owner of pieces, may have nothing to update; torch's optimizers refuse that.
        self._inner: Optimizer | None = make_inner(kind, infos, masters, means) if trained else None
        for h in held.values():
            if h.live.requires_grad and not place.storage.is_fully_sharded(h.stored):
                watch(h, reducer.ready if reducer.listens_to(h.name) else None)

    @property
    def masters(self) -> dict[str, Tensor]:
        """This rank's pieces of the parameters that train, in the masters' type."""
        return {name: master.detach() for name, master in self._weights.masters.items()}

    @property
    def tensors(self) -> dict[str, Tensor]:
        """This rank's pieces of all parameters: masters, and what is frozen as the module has it."""
        frozen = {n: h.local for n, h in self._held.items() if n in self.place.storage.frozen}
        return self.masters | frozen

    def live_tensors(self) -> dict[str, Tensor]:
        """What this rank's modules compute with; of what FSDP divides, its rows."""
        return {name: held.local for name, held in self._held.items()}

    @property
    def device(self) -> torch.device:
        return next((h.local.device for h in self._held.values()), torch.device("cpu"))

    def zero_grad(self) -> None:
        for master in self._weights.masters.values():
            master.grad = None
        self._summed, self._gradients = [], {}
        self._reducer.begin()

    def arm(self, stage: int) -> None:
        """The next backward pass of `stage` brings its last gradients of this step.

        Where neither it nor `stage_done` is called, everything is summed in `finish`.
        """
        self._reducer.arm(stage)

    def stage_done(self, stage: int) -> None:
        """The backward pass that brought the last gradients of `stage` is over."""
        self._reducer.stage_done(stage)

    def finish(self) -> None:
        """Sum all gradients over ranks; waits for them."""
        self._summed = self._reducer.finish()
        self._gradients = {n: g for summed in self._summed for n, g in summed.parts.items()}

    def gradients(self) -> dict[str, Tensor]:
        """This rank's pieces of the summed gradients, after `finish`."""
        return self._gradients

    def judge(self, losses: Mapping[str, Tensor]) -> Verdict:
        """Norm of the whole gradient and the losses, the same on every rank. Collective.

        `losses` are what the stages of this rank brought to each, summed over its microbatches.
        """
        at = self.place.at
        # Those that lie together have copies on the same ranks: one of them speaks for all.
        shares = [
            Share(summed.own, self._counts[next(iter(summed.parts))])
            for summed in self._summed
            if summed.parts
        ]
        # Losses are whole over tp and cp: the first rank there speaks for all.
        own = {} if at.get("tp", 0) or at.get("cp", 0) else losses
        verdict = judge(
            shares,
            self._gradients,
            own,
            self._reducer.reached,
            self.place.plan,
            self.place.job,
            self.device,
        )
        self.reached = verdict.reached
        self._fill_parts()
        return verdict

    def _fill_parts(self) -> None:
        """Zeros for a part that nothing reached here, where something reached another part."""
        for name, master in self._weights.masters.items():
            if name in self.reached and name not in self._gradients:
                self._gradients[name] = torch.zeros_like(master, requires_grad=False)

    def clip(self, factor: float) -> None:
        """Multiply every gradient."""
        if self._summed:
            torch._foreach_mul_([summed.flat for summed in self._summed], factor)

    def step(self, learning_rate: float) -> None:
        """One update of what `judge` found reached. Collective where zero is 1 or 2."""
        for name, master in self._weights.masters.items():
            master.grad = self._gradients.get(name) if name in self.reached else None
        if self._inner is not None:
            update(self._inner, learning_rate)
        self.publish()

    def publish(self) -> None:
        """Copy the masters to the modules. Collective where zero is 1 or 2."""
        self._weights.publish()

    def state_tensors(self) -> dict[str, Tensor]:
        """This rank's pieces of the state, `<slot>/<parameter>`: the tensors, not copies."""
        if self._inner is None:
            return {}
        return {
            f"{slot}/{name}": value
            for name, master in self._weights.masters.items()
            for slot, value in self._inner.state[master].items()
        }


def combined_groups(plan: ParallelPlan) -> set[tuple[str, ...]]:
    """The sets of mesh axes that an optimizer sums over: for `Groups.make`."""
    ownership = Ownership.of(plan)
    storage = Storage.of(plan, precision="float32")
    wanted = {ownership.mesh.split_axes}
    for stored in plan.parameters:
        wanted.add(storage.sum_axes(stored))
        wanted.update(mean_axes(stored, ownership))
    return {axes for axes in wanted if len(axes) > 1}


def build_parallel_optimizer(
    kind: Config,
    plan: ParallelPlan,
    groups: Groups,
    modules: Mapping[int, nn.Module],
    *,
    precision: str,
    freeze: Sequence[str] = (),
    bucket_bytes: int = BUCKET_BYTES,
    units: Mapping[int, Sequence[str]] | None = None,
) -> ParallelOptimizer:
    """Make masters of what this rank holds, then turn its modules into their computing type.

    `modules` are this rank's stages by index, in the masters' type. `units`, for zero 3, are the
    submodules of each stage that are gathered at a time (by default its layers). Every rank
    builds at the same time. Raises SettingsError as `check_storage` and `frozen_names` do.
    """
    check_storage(plan, kind.name)
    frozen = frozen_names([p.info.name for p in plan.parameters], freeze)
    storage = Storage.of(plan, precision=precision, frozen=frozen, bucket_bytes=bucket_bytes)
    place = Place(plan, groups, storage)
    ties = TieGroups.make(plan, groups.rank)
    parameters = find_parameters(modules, plan.parameters)
    for name in frozen & parameters.keys():
        parameters[name].requires_grad_(False)
    values = {name: p.detach() for name, p in parameters.items()}
    stored_of = {p.info.name: p for p in plan.parameters}
    reached: set[str] = set()
    if any(storage.is_fully_sharded(stored_of[name]) for name in parameters):
        _shard_stages(place, modules, parameters, units or {}, reached)
        parameters = find_parameters(modules, plan.parameters)
    else:
        for module in modules.values():
            lower_module(module, plan.model, compute_dtype(precision))
    held = {name: _hold(place, stored_of[name], p, reached) for name, p in parameters.items()}
    trained = {name: h for name, h in held.items() if name not in frozen}
    buckets = storage.buckets(place.at)
    reducer = Reducer(
        trained, buckets, groups, ties, divide=storage.zero in (1, 2), keep=storage.zero < 2
    )
    return ParallelOptimizer(kind, place, held, _weights(place, trained, values), reducer)


def _hold(
    place: Place, stored: StoredParameter, parameter: nn.Parameter, reached: set[str]
) -> Held:
    dtype = compute_dtype(place.storage.master_dtype(stored))
    sharded = place.storage.is_fully_sharded(stored)
    return Held(stored, parameter, dtype, reached if sharded else None)


def _weights(place: Place, trained: Mapping[str, Held], values: Mapping[str, Tensor]) -> Weights:
    storage = place.storage
    divided = {name for name, h in trained.items() if storage.is_divided(h.stored)}
    whole = WholeWeights([h for name, h in trained.items() if name not in divided], values)
    if not divided:
        return whole
    buckets = [b for b in storage.buckets(place.at) if b.names[0] in divided]
    return JoinedWeights(whole, DividedWeights(trained, buckets, place.groups, values))


def _shard_stages(
    place: Place,
    modules: Mapping[int, nn.Module],
    parameters: Mapping[str, nn.Parameter],
    units: Mapping[int, Sequence[str]],
    reached: set[str],
) -> None:
    precision = place.storage.precision
    stored_of: Mapping[str, StoredParameter] = {p.info.name: p for p in place.plan.parameters}
    whole = [p for n, p in parameters.items() if not place.storage.is_fully_sharded(stored_of[n])]
    for stage, module in modules.items():
        shard_fully(
            module,
            units[stage] if stage in units else layers_of(module),
            place.groups.dp,
            dtype=compute_dtype(precision),
            master=master_dtype(precision),
            kept_whole=whole,
            reached=reached.add,
        )
        for buffer in module.buffers():
            if buffer.is_floating_point():
                buffer.data = buffer.data.to(compute_dtype(precision))
