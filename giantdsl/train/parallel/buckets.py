"""How gradients are packed into flat buffers, and who owns which piece of a parameter.

Pure integers: the same lists come out on every rank, so that all start the same collectives in
the same order, and rank 0 knows where every piece lies.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from giantdsl.plan import ParallelPlan, StoredParameter
from giantdsl.train.parallel.ownership import Box, Coordinate, Ownership, local_shape, volume

BUCKET_BYTES = 25 * 2**20

ALIGN = 64
"""Elements. Kernels treat the last elements of a tensor apart, with other roundings; a piece that
begins and ends on a multiple of what they take at once gets the bits that the whole tensor gets."""

_BYTES = {"bf16": 2, "float32": 4, "float64": 8}


@dataclass(frozen=True, slots=True)
class BucketKey:
    """What gradients in one bucket have in common.

    `sum_over` mesh axes, `tied` places on pp that hold the parameters (() for a single one).
    `split` are the mesh axes that divide them: copies of a tensor then lie in equal buckets
    everywhere. `late`: several stages use them, so that no one backward pass is the last. Gradients
    are of `dtype`, the masters', what the module computes with of `live_dtype`.
    """

    sum_over: tuple[str, ...]
    tied: tuple[int, ...]
    split: tuple[str, ...]
    late: bool
    dtype: str
    live_dtype: str


@dataclass(frozen=True, slots=True)
class Bucket:
    """Gradients that are summed together: `names` at `offsets`, `sizes` elements each.

    The flat buffer has `chunk` elements for each rank of the group that sums.
    """

    key: BucketKey
    names: tuple[str, ...]
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    chunk: int
    parts: int

    @property
    def length(self) -> int:
        return self.chunk * self.parts

    def span(self, name: str, place: int) -> tuple[int, int]:
        """(start, stop) of the elements of a tensor that the rank at `place` owns; may be empty."""
        index = self.names.index(name)
        offset, size = self.offsets[index], self.sizes[index]
        start = min(max(place * self.chunk - offset, 0), size)
        stop = min(max((place + 1) * self.chunk - offset, start), size)
        return start, stop


@dataclass(frozen=True, slots=True)
class Piece:
    """What a rank keeps of a logical parameter: elements `span` of the flattened `box`."""

    box: Box
    span: tuple[int, int]

    @property
    def size(self) -> int:
        return self.span[1] - self.span[0]


@dataclass(slots=True)
class Storage:
    """Where parameters, gradients and optimizer state lie.

    `zero` as in the plan, `frozen` the names that do not train. `precision` is that of the run:
    masters are float32 under bf16.
    """

    ownership: Ownership
    parameters: tuple[StoredParameter, ...]
    zero: int
    precision: str
    frozen: frozenset[str] = frozenset()
    bucket_bytes: int = BUCKET_BYTES
    _made: dict[tuple[tuple[str, int], ...], list[Bucket]] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        plan: ParallelPlan,
        *,
        precision: str,
        frozen: frozenset[str] = frozenset(),
        bucket_bytes: int = BUCKET_BYTES,
    ) -> Storage:
        ownership = Ownership.of(plan)
        return cls(ownership, plan.parameters, plan.zero, precision, frozen, bucket_bytes)

    def master_dtype(self, stored: StoredParameter) -> str:
        """The type a parameter is updated in: "float32", "float64" or "bf16"."""
        if stored.info.dtype is not None:
            return stored.info.dtype
        return "float32" if self.precision == "bf16" else self.precision

    def is_fully_sharded(self, stored: StoredParameter) -> bool:
        """Does FSDP divide it (zero 3)? Not what has a type of its own: FSDP has one for all."""
        wide = self.ownership.mesh.axis_size("dp") > 1
        return self.zero == 3 and wide and stored.info.dtype is None

    def is_divided(self, stored: StoredParameter) -> bool:
        """Is it updated in pieces by the ranks that sum its gradient (zero 1 and 2)?"""
        trains = stored.info.name not in self.frozen
        return self.zero in (1, 2) and trains and bool(self.ownership.sum_axes(stored))

    def sum_axes(self, stored: StoredParameter) -> tuple[str, ...]:
        """The mesh axes over which we sum the gradient; FSDP sums over dp itself."""
        axes = self.ownership.sum_axes(stored)
        return tuple(a for a in axes if not (a == "dp" and self.is_fully_sharded(stored)))

    def counted_over(self, stored: StoredParameter) -> tuple[str, ...]:
        """The mesh axes along which copies of a part count different pieces of it in the norm.

        A sum is the same on all ranks of the group that sums: each looks at its chunk alone.
        """
        own = ("dp",) if self.is_fully_sharded(stored) else ()
        return (*own, *self.sum_axes(stored))

    def held(self, stored: StoredParameter, at: Coordinate) -> Piece:
        """What a rank has in its module: its box, or the rows of it that FSDP leaves there."""
        box = self.ownership.box(stored, at)
        size = volume(box)
        if not self.is_fully_sharded(stored):
            return Piece(box, (0, size))
        shape = local_shape(stored, box)
        rows = shape[0] if shape else 1
        each = -(-rows // self.ownership.mesh.axis_size("dp"))
        start, stop = (min(place * each, rows) for place in (at["dp"], at["dp"] + 1))
        width = size // rows if rows else 0
        return Piece(box, (start * width, stop * width))

    def piece(self, stored: StoredParameter, rank: int) -> Piece | None:
        """What a rank updates of a parameter; None where its stages lie elsewhere."""
        at = self.ownership.mesh.coordinate(rank)
        if not self.ownership.holds(stored, at):
            return None
        held = self.held(stored, at)
        if not self.is_divided(stored):
            return held
        bucket = next(b for b in self.buckets(at) if stored.info.name in b.names)
        place = self.ownership.mesh.group(rank, *bucket.key.sum_over).index(rank)
        return replace(held, span=bucket.span(stored.info.name, place))

    def buckets(self, at: Coordinate) -> list[Bucket]:
        """The buckets of a rank in the order in which they are summed.

        Filled from the last parameter to the first, as backward passes reach them; those of several
        stages come last.
        """
        divide = {axis for p in self.parameters for axis in self.ownership.split_axes(p)}
        varies = sorted(divide | {"pp"} | ({"dp"} if self.zero == 3 else set()))
        key = tuple((axis, at.get(axis, 0)) for axis in varies)
        if key not in self._made:
            self._made[key] = self._make(at)
        return self._made[key]

    def _make(self, at: Coordinate) -> list[Bucket]:
        opened: dict[BucketKey, tuple[list[StoredParameter], int]] = {}
        closed: list[tuple[BucketKey, list[StoredParameter]]] = []
        for stored in reversed(self.parameters):
            key = self._key(stored)
            skip = stored.info.name in self.frozen or not self.ownership.holds(stored, at)
            if skip or not (key.sum_over or key.tied):
                continue
            # The largest part anywhere decides, so that buckets hold the same names on all ranks.
            size = self.ownership.largest(stored) * _BYTES[key.dtype]
            members, filled = opened.get(key, ([], 0))
            if members and filled + size > self.bucket_bytes:
                closed.append((key, members))
                members, filled = [], 0
            opened[key] = ([*members, stored], filled + size)
        place = {stored.info.name: i for i, stored in enumerate(self.parameters)}
        rest = [(key, members) for key, (members, _) in opened.items()]
        whole = sorted([*closed, *rest], key=lambda item: -place[item[1][-1].info.name])
        ordered = sorted(whole, key=lambda item: item[0].late)
        return [self._pack(key, members, at) for key, members in ordered]

    def _key(self, stored: StoredParameter) -> BucketKey:
        places = self.ownership.pipeline_ranks(stored)
        return BucketKey(
            sum_over=self.sum_axes(stored),
            tied=tuple(sorted(places)) if len(places) > 1 else (),
            split=self.ownership.split_axes(stored),
            late=len(stored.stages) > 1,
            dtype=self.master_dtype(stored),
            live_dtype=stored.info.dtype or self.precision,
        )

    def _pack(self, key: BucketKey, members: Sequence[StoredParameter], at: Coordinate) -> Bucket:
        sizes = [self.held(stored, at).size for stored in members]
        offsets, end = [], 0
        for size in sizes:
            offsets.append(end)
            end += _aligned(size)
        parts = math.prod(self.ownership.mesh.axis_size(axis) for axis in key.sum_over)
        return Bucket(
            key=key,
            names=tuple(stored.info.name for stored in members),
            offsets=tuple(offsets),
            sizes=tuple(sizes),
            chunk=_aligned(-(-end // parts)),
            parts=parts,
        )


def by_name(parameters: Sequence[StoredParameter]) -> Mapping[str, StoredParameter]:
    return {stored.info.name: stored for stored in parameters}


def _aligned(size: int) -> int:
    return -(-size // ALIGN) * ALIGN
