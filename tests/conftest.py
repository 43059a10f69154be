from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def global_randomness_untouched() -> Iterator[None]:
    """No code under test may draw from the global generator."""
    torch.set_num_threads(1)
    before = torch.random.get_rng_state()
    yield
    assert torch.equal(before, torch.random.get_rng_state()), "the global random generator was used"
