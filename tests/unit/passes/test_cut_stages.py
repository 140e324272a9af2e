"""Stage programs: what crosses a cut, and the same numbers as the whole model."""

from __future__ import annotations

import pytest

from tests.unit.passes import staged

_CUTS = {
    "gpt2": [("dims.layers=5",), (2, 1, 2), (0, 3, 2, 0), (5, 0)],
    "llama3": [("dims.layers=4",), (1, 1, 1, 1)],
    "bert": [("dims.layers=3",), (1, 2), (0, 1, 1, 1)],
    "vit": [("dims.layers=4",), (1, 3), (0, 4)],
    "t5": [("dims.layers=3",), (3, 3), (1, 2, 1, 2), (2, 2, 2), (0, 3, 3, 0)],
    "mixtral": [("dims.layers=4",), (1, 1, 2), (0, 2, 2)],
    "alternating": [("dims.layers=6",), (1, 2, 3), (3, 3), (4, 1, 1)],
    "custom": [("dims.layers=6",), (1, 1, 1, 2), (2, 2, 1), (3, 1, 1), (0, 5)],
    "demo": [("dims.s=12", "dims.layers=3", "dims.vocab=50", "dims.drop=0.1"), (1, 1, 1)],
}
_CASES = [(model, counts) for model, (_, *cuts) in _CUTS.items() for counts in cuts]


@pytest.mark.parametrize(("model", "counts"), _CASES)
def test_same_losses_and_gradients(model: str, counts: tuple[int, ...]) -> None:
    program, parallel = staged.compiled(model, *_CUTS[model][0])
    inputs = staged.batch(program)
    stages = staged.cut(program, parallel, stages=counts)
    assert len(stages) == len(counts)
    staged.assert_equal(staged.run_whole(program, inputs), staged.run_stages(stages, inputs))
