"""What a selector chooses, with workers as one or apart."""

from __future__ import annotations

from collections.abc import Sequence

from f2cto.federation.joint import Joint, in_this_process
from f2cto.methods.base import Shard
from f2cto.methods.lockstep import CoresetProgram, F2cto
from f2cto.trilevel.worker import WorkerState


def chosen(method: F2cto, shards: Sequence[Shard], *, together: bool) -> list[list[int]]:
    """Every worker's picks, all in double precision."""
    engine = in_this_process(CoresetProgram(method.stages(), together=together), shards)
    if isinstance(engine, Joint) is not together:
        msg = f"Workers were to work as one: {together}; the engine is {type(engine).__name__}."
        raise AssertionError(msg)
    method.lead(engine.ask, shards[0].model.own().double(), lambda _: None)
    states = [state for state in engine.states if isinstance(state, WorkerState)]
    return [method.coreset(*pair).indices.tolist() for pair in zip(shards, states, strict=True)]
