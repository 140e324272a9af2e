"""Cells in turn, on ranks that are started once, and anew after a backend has failed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from giantdsl.bench.cells import Cell, Shape
from giantdsl.bench.rows import Row, rows_of_cell
from giantdsl.bench.session import BackendFailed, BenchRanks


@dataclass(slots=True)
class Plan:
    """Cells of one shape and link. `limit_of` is asked for a cell's limit while ranks are up."""

    shape: Shape
    link: str
    cells: Sequence[Cell]
    backends: Sequence[str]
    rounds: int
    budget_s: float
    limit_of: Callable[[BenchRanks, Cell], float | None]


class Runner:
    """Measures plans on ranks that `connect` starts: once, and anew after a backend has failed."""

    def __init__(self, connect: Callable[[Sequence[str]], BenchRanks]) -> None:
        self._connect = connect
        self._ranks: BenchRanks | None = None
        self._broken: set[tuple[str, str]] = set()

    def close(self) -> None:
        if self._ranks is not None:
            self._ranks.close()
        self._ranks = None

    def run(self, plan: Plan) -> Iterator[list[Row]]:
        """The rows of each cell. A backend that failed at an operation is not asked for it again.

        Raises BackendFailed where ranks cannot even be started.
        """
        for cell in plan.cells:
            yield self._cell(plan, cell)

    def _cell(self, plan: Plan, cell: Cell) -> list[Row]:
        failed: list[Row] = []
        while names := [n for n in plan.backends if (n, cell.operation) not in self._broken]:
            if self._ranks is None:
                self._ranks = self._connect(plan.backends)
            try:
                limit = plan.limit_of(self._ranks, cell)
                answers = self._ranks.measure(cell, names, plan.rounds, plan.budget_s)
            except BackendFailed as error:
                self._ranks = None
                if error.backend not in names:
                    raise
                self._broken.add((error.backend, cell.operation))
                failed.append(_failed_row(plan, cell, error))
                continue
            return rows_of_cell(cell, plan.shape, plan.link, answers, limit) + failed
        return failed


def _failed_row(plan: Plan, cell: Cell, error: BackendFailed) -> Row:
    return Row(
        shape=str(plan.shape), link=plan.link, operation=cell.operation,
        num_bytes=cell.num_bytes, backend=error.backend, error=error.message,
    )  # fmt: skip
