from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Who uses the Ray cluster of the tests runs by `make test-federation`; other tests of processes are marked."""
    for item in items:
        if "cluster" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.federation)


@pytest.fixture(autouse=True)
def global_randomness_untouched() -> Iterator[None]:
    """No code under test may draw from the global generator."""
    torch.set_num_threads(1)
    before = torch.random.get_rng_state()
    yield
    assert torch.equal(before, torch.random.get_rng_state()), "the global random generator was used"
