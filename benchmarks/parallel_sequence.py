"""Two ranks with half a sequence each: keys that go round a ring against keys that are gathered."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from parallel_setup import Case, build_stages, even_shares, tokens
from parallel_timing import Row, Times, alternate, compare, of_all_ranks
from torch import Tensor

from giantdsl.runtime.executor import Executor
from giantdsl.runtime.groups import Groups
from giantdsl.runtime.rank_model import mesh_of
from giantdsl.testing.ranks import RankPool

RANKS, VOCAB = 2, 256


def sequence(pool: RankPool, rounds: int, hidden: int, lengths: tuple[int, ...]) -> list[Row]:
    """Milliseconds of a forward and a backward pass of two layers."""
    found: list[Row] = []
    for length in lengths:
        sizes = (
            f"dims.d={hidden}",
            "dims.layers=2",
            f"dims.s={length}",
            f"dims.vocab={VOCAB}",
            "train.batch=1",
        )
        cases = {
            name: Case("gpt.giant", (*sizes, f"parallel.ring={on}"), "ring_plan.giant")
            for name, on in (("ring", "true"), ("gather", "false"))
        }
        times = of_all_ranks(pool.run(on_rank, cases, length, rounds, ranks=RANKS, timeout_s=600))
        what = f"2 layers of {hidden}, {length} positions, cp {RANKS}"
        found += compare("sequence", what, times, [("ring", "gather", 1.0)])
    return found


def on_rank(
    rank: int, world: int, cases: Mapping[str, Case], length: int, rounds: int
) -> dict[str, Times]:
    batch = tokens(1, length, VOCAB, seed=0)
    runs = {name: _passes(case, rank, batch) for name, case in cases.items()}
    return alternate(runs, rounds, calls=2)


def _passes(case: Case, rank: int, batch: Mapping[str, Tensor]) -> Callable[[], None]:
    model, plan = build_stages(case, rank)
    executor = Executor(plan, Groups.make(mesh_of(plan), rank), model.stages, model.axes)
    shares = even_shares([batch])

    def run() -> None:
        executor.run([batch], [None], shares)
        for module in model.stages.values():
            module.zero_grad(set_to_none=True)

    return run
