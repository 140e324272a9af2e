"""Four ranks on the giant backend, built first: it takes minutes where it never was."""

from collections.abc import Iterator

import pytest
from giantdsl.backends.giant import build, capability

from giantdsl.testing.ranks import RankPool


@pytest.fixture(scope="session")
def giant_ranks() -> Iterator[RankPool]:
    found = capability()
    if not found.is_usable:
        pytest.skip(f"no giant backend here: {found.why_not}")
    build()
    with RankPool(4, backend="giant") as pool:
        yield pool
