"""Layouts run on real processes, one after another, each compared with one process."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from giantdsl.driver import Compiled
from giantdsl.errors import GiantError
from giantdsl.plan import ParallelPlan, Plan
from giantdsl.planning import make_parallel_plan
from giantdsl.running import base_dir, train_settings
from giantdsl.runtime.rank_model import mesh_of
from giantdsl.testing.ranks import RankPool
from giantdsl.train.job import TrainJob
from giantdsl.verify.batch import make_batch
from giantdsl.verify.check_rank import Finding, Task, check_rank
from giantdsl.verify.mutants import mutated
from giantdsl.verify.places import place_text, places_of
from giantdsl.verify.reference import make_reference
from giantdsl.verify.rows import Layout, Row

Compile = Callable[[Layout], Compiled]
"""Gives the spec under a layout: `SmallSpec.compile`."""

BOUND = 1e-10
"""Relative, in float64: rounding errors of a small model are a thousand times smaller."""


class Runner:
    """Compares layouts of one spec. Holds a pool of processes: close it, or use it in a `with`.

    `compile_layout` gives the spec under a layout, small enough to run, in float64. `most_ranks`
    will be asked for: the pool has as many from the start, and its ranks talk over `backend`
    (None: see RankPool). `pool` is one that exists already.
    """

    def __init__(
        self,
        compile_layout: Compile,
        *,
        most_ranks: int = 1,
        backend: str | None = None,
        pool: RankPool | None = None,
        seed: int = 0,
        bound: float = BOUND,
        timeout_s: float = 120,
    ) -> None:
        self._compile = compile_layout
        self._most_ranks, self._backend = most_ranks, backend
        self._seed, self._bound, self._timeout_s = seed, bound, timeout_s
        self._pool, self._owns_pool = pool, pool is None
        self._folder = tempfile.TemporaryDirectory(prefix="giantdsl-verify-")
        self._made: dict[str, Path] = {}

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *error: object) -> None:
        if self._pool is not None and self._owns_pool:
            self._pool.close()
        self._folder.cleanup()

    def run(self, layout: Layout, mutant: str | None = None) -> Row | None:
        """One row; None for a mutant that the layout has no place for.

        Raises SpecError for a layout that is not legal.
        """
        started = time.perf_counter()
        compiled = self._compile(layout)
        plan = make_parallel_plan(compiled)
        if mutant is not None:
            changed = mutated(plan, mutant)
            if changed is None:
                return None
            plan = changed
        ranks = mesh_of(plan).size
        job = _job(compiled, plan.model, self._seed)
        batch, reference = self._reference(compiled, plan, job)
        task = Task(
            plan, job, batch, reference, "equal" if mutant == "mean_of_means" else "counted"
        )
        try:
            found = self._ranks(ranks).run(
                check_rank, task, ranks=ranks, timeout_s=self._timeout_s
            )[0]
        except GiantError as error:
            return self._failed(layout, ranks, str(error), time.perf_counter() - started)
        return self._row(compiled, layout, ranks, found, time.perf_counter() - started)

    def _ranks(self, needed: int) -> RankPool:
        if self._pool is not None and self._pool.size < needed:
            assert self._owns_pool, f"a pool of {self._pool.size} for {needed} ranks"
            self._pool.close()
            self._pool = None
        if self._pool is None:
            self._pool = RankPool(max(needed, self._most_ranks), backend=self._backend)
        return self._pool

    def _reference(
        self, compiled: Compiled, plan: ParallelPlan, job: TrainJob
    ) -> tuple[Path, Path]:
        """The batch and one process's result, made once for each model and batch."""
        blocks = {name: len(values) for stage in plan.stages for name, values in stage.blocks}
        key = f"{plan.model.source}|{job.settings}|{sorted(blocks)}"
        folder = self._made.get(key)
        if folder is None:
            folder = self._made[key] = Path(self._folder.name) / str(len(self._made))
            folder.mkdir()
            batch = make_batch(plan.model, job.settings.batch, self._seed, _ignored(compiled))
            torch.save(batch, folder / "batch.pt")
            reference = make_reference(
                plan.model, job.settings, batch, blocks, seed=self._seed, search_path=job.base_dir
            )
            reference.save(folder / "reference.pt")
        return folder / "batch.pt", folder / "reference.pt"

    def _row(
        self,
        compiled: Compiled,
        layout: Layout,
        ranks: int,
        found: Sequence[Finding],
        seconds: float,
    ) -> Row:
        worst = max(found, key=lambda finding: finding.error)
        first = next((f for f in found if not f.error <= self._bound), None)
        place = None
        if first is not None:
            spans = places_of(compiled.program)
            span = spans.get(first.name)
            place = None if span is None else place_text(span)
        return Row(
            layout=layout.label,
            ranks=ranks,
            worst=f"{worst.kind} {worst.name}",
            error=worst.error,
            bound=self._bound,
            ok=first is None,
            first=None if first is None else f"{first.kind} {first.name}",
            place=place,
            seconds=seconds,
            message=None,
        )

    def _failed(self, layout: Layout, ranks: int, message: str, seconds: float) -> Row:
        return Row(
            layout=layout.label,
            ranks=ranks,
            worst="",
            error=float("inf"),
            bound=self._bound,
            ok=False,
            first=None,
            place=None,
            seconds=seconds,
            message=message,
        )


def _job(compiled: Compiled, plan: Plan, seed: int) -> TrainJob:
    settings = replace(train_settings(compiled), seed=seed, init=None, compile=False)
    folder = base_dir(compiled)
    return TrainJob(plan=plan, settings=settings, run_dir=folder, base_dir=folder)


def _ignored(compiled: Compiled) -> dict[str, int | None]:
    """By input, the label that a loss leaves out: where the labels are the input itself."""
    counts = compiled.program.counts.values()
    return {c.labels.name: c.ignore for c in counts if c.labels is not None and c.labels.name}
