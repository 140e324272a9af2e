"""The ranks that all many-process tests share."""

from collections.abc import Iterator

import pytest

from giantdsl.testing.ranks import RankPool


@pytest.fixture(scope="session")
def ranks() -> Iterator[RankPool]:
    """Eight processes, started by the first test that asks for them."""
    with RankPool(8) as pool:
        yield pool
