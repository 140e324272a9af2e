"""The ranks that all many-process tests share."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from giantdsl.testing.ranks import RankPool

OPS = Path(__file__).resolve().parents[1] / "ops"


@pytest.fixture(scope="session")
def ranks() -> Iterator[RankPool]:
    """Eight processes, started by the first test that asks for them.

    They find the module that `models/custom.giant` calls.
    """
    sys.path.insert(0, str(OPS))
    with RankPool(8) as pool:
        yield pool
    sys.path.remove(str(OPS))
