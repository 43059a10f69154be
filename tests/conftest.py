from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

HERE = Path(__file__).parent
PROCESSES = [HERE / "cluster", HERE / "flower", HERE / "site" / "test_process.py"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What starts other programs takes long, and runs by `make test-federation` instead of in the default suite."""
    for item in items:
        if any(item.path.is_relative_to(path) for path in PROCESSES):
            item.add_marker(pytest.mark.federation)


@pytest.fixture(autouse=True)
def global_randomness_untouched() -> Iterator[None]:
    """No code under test may draw from the global generator."""
    torch.set_num_threads(1)
    before = torch.random.get_rng_state()
    yield
    assert torch.equal(before, torch.random.get_rng_state()), "the global random generator was used"
