"""A selection lets go of its data by itself: nothing waits for the garbage collector."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator, Sequence

import pytest
from torch import Tensor

from f2cto import select
from f2cto.methods.base import Selector, Shard
from f2cto.methods.catalogue import METHODS
from f2cto.methods.running import Here
from testing.quick import quick
from testing.shards import blobs

SHORT = {"stopping": {"iterations": 2}}
QUICK = {**dict.fromkeys(("f2cto", "f2cto+p", "f2cto-places", "f2cto-top", "f2cto-literal", "ubv", "lbv"), SHORT)}
QUICK |= quick()
SHARDS = [blobs(24, 3, seed) for seed in range(2)]


@pytest.fixture(autouse=True)
def _no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.filterwarnings("ignore:The initial parameters have norm")
@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("name", METHODS)
def test_data_are_freed_when_a_selection_ends(name: str, *, together: bool) -> None:
    alive: list[weakref.ref[Shard]] = []

    def gather(selector: Selector, shards: Sequence[Shard]) -> Here:
        alive.extend(weakref.ref(shard) for shard in shards)
        return Here(selector, shards, together=together)

    chosen = select(SHARDS, 3, method=name, settings=QUICK.get(name, {}), gather=gather)
    assert [ref() for ref in alive] == [None, None]
    assert len(chosen.indices) == 2  # the result is still here, and holds no sample


def tensors_alive() -> int:
    """The bytes of all tensors there are, reachable or not."""
    return sum(t.numel() * t.element_size() for t in gc.get_objects() if type(t) is Tensor)


def test_selections_leave_no_tensors_behind() -> None:
    """The digits' size: 20 selections leave less than half a shard."""
    x, y = blobs(1000, 10, 0, (64,))
    select([(x, y)], 20, settings=SHORT)
    before = tensors_alive()
    for seed in range(20):
        select([(x, y)], 20, settings=SHORT, seed=seed)
    assert tensors_alive() - before < x.numel() * x.element_size() / 2
