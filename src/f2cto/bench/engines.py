"""What the Ray engine costs: message rounds beside iterations, and 200 workers in this process and on a cluster.

A message round is measured with a program that does no work and answers with as much as the method does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

from f2cto.bench.measure import Say, interleaved, random_shards
from f2cto.cluster.connection import Connection
from f2cto.cluster.fleet import RayFleet, ray_fleet
from f2cto.cluster.hosts import Cluster
from f2cto.data.encoding import encode
from f2cto.data.folder import data_folder
from f2cto.data.partition import iid
from f2cto.data.sources import SOURCES
from f2cto.federation.engine import Program
from f2cto.federation.faults import Faults
from f2cto.federation.in_process import InProcess
from f2cto.message import Ask, Message
from f2cto.methods.base import Coreset, OnRound, Shard
from f2cto.methods.f2cto_settings import F2ctoSettings, Perturbation
from f2cto.methods.lockstep import F2cto
from f2cto.methods.quotas import Balance
from f2cto.methods.running import Gather, Here, Result, run
from f2cto.models import FlatModel, fresh, mlp
from f2cto.randomness import generator
from f2cto.resnet import resnet18
from f2cto.trilevel.master import Solution, average
from f2cto.trilevel.settings import Stopping
from f2cto.trilevel.worker import WorkerState

IDLE = "idle"
CASES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], int, int]] = {
    # name: network, sample, samples of each of two workers, R
    "mlp 784-100-100-10": (lambda: mlp(784, (100, 100), 10), (784,), 600, 10),
    "resnet18": (lambda: resnet18(3, 10, width=64), (3, 32, 32), 32, 3),
}
CLUSTER = Cluster()
SOURCE = "unsw-nb15"
WORKERS, SAMPLES, SIZE, HIDDEN, RADIUS, ITERATIONS = 200, 10_000, 5, (128, 128), 0.05, 100  # as its preset `small`


def engines(repeats: int, say: Say) -> dict[str, Any]:
    """Seconds of iterations and of message rounds with either engine, and of a selection among 200 workers."""
    results: dict[str, Any] = {}
    began = time.perf_counter()
    connection = Connection()
    results["cluster_start_seconds"] = time.perf_counter() - began
    try:
        for name, (make, shape, count, steps) in CASES.items():
            model = FlatModel(fresh(make, generator(0)))
            found = rounds(random_shards(model, shape, [count] * 2, 10), steps, repeats)
            results[name] = {"parameters": model.size, "samples": count, "steps": steps} | found
            say(f"{name}: " + ", ".join(f"{key} {value:.4g}" for key, value in found.items()))
        if SOURCES[SOURCE].here(data_folder()):
            results["many workers"] = many_workers(say)
    finally:
        connection.close()
    return results


def rounds(shards: list[Shard], steps: int, repeats: int) -> dict[str, float]:
    """Seconds of an iteration and of its two message rounds, in this process and on the cluster, in one run."""
    method = Idling(F2cto(F2ctoSettings(perturbation=Perturbation(steps=steps, ramp=0)), radius=1e6))
    w = shards[0].model.own()
    began = time.perf_counter()
    with RayFleet(method, shards, cluster=CLUSTER) as fleet:
        start = time.perf_counter() - began
        here = InProcess(method.program(), shards)
        tasks: Mapping[str, Callable[[], object]] = {
            "in_process": partial(iterate, here.ask, w),
            "ray": partial(iterate, fleet.ask, w),
            "in_process_messages": partial(idle, here.ask, w),
            "ray_messages": partial(idle, fleet.ask, w),
        }
        seconds = interleaved(tasks, repeats)
    return seconds | {
        "ray_start": start,
        "ray_share": seconds["ray_messages"] / seconds["ray"],
        "ray_share_of_in_process": seconds["ray_messages"] / seconds["in_process"],
    }


def iterate(ask: Ask, w: torch.Tensor) -> torch.Tensor:
    """One iteration of Algorithm 1."""
    w_hat = average([r.vectors["w_hat"] for r in ask("refine", Message({"w": w}, {"t": 0.0}))])
    return average([r.vectors["w"] for r in ask("update", Message({"w_hat": w_hat}))])


def idle(ask: Ask, w: torch.Tensor) -> torch.Tensor:
    """The same messages without the work."""
    w_hat = average([r.vectors["w"] for r in ask(IDLE, Message({"w": w}, {"t": 0.0}))])
    return average([r.vectors["w"] for r in ask(IDLE, Message({"w": w_hat}))])


@dataclass(frozen=True)
class Idling:
    """A method whose workers can also be asked to do nothing."""

    inner: F2cto

    def program(self) -> IdlingProgram:
        """What runs at each worker."""
        return IdlingProgram(self.inner.program())

    def lead(self, ask: Ask, w: torch.Tensor, on_round: OnRound) -> Solution:
        """The method's own."""
        return self.inner.lead(ask, w, on_round)

    def coreset(self, shard: Shard, state: WorkerState) -> Coreset:
        """The method's own."""
        return self.inner.coreset(shard, state)


@dataclass(frozen=True)
class IdlingProgram:
    """The method's program with one more phase."""

    inner: Program[Shard, WorkerState]

    def start(self, shard: Shard) -> WorkerState:
        """The private state before the first message."""
        return self.inner.start(shard)

    def run(self, phase: str, shard: Shard, state: WorkerState, message: Message) -> tuple[WorkerState, Message]:
        """Answer one message; the idle answer is a vector of its own, as a worker's is that has moved it."""
        if phase == IDLE:
            return state, Message({"w": message.vectors["w"] + float(shard.worker)}, {"objective": 0.0})
        return self.inner.run(phase, shard, state, message)


def many_workers(say: Say) -> dict[str, float]:
    """A whole selection among many workers: as one in this process, apart in this process, on the cluster."""
    shards = many_shards()
    settings = F2ctoSettings(
        perturbation=Perturbation(eval_radius=RADIUS, train_radius=RADIUS), stopping=Stopping(iterations=ITERATIONS)
    )
    method = F2cto(settings, radius=2 * float(shards[0].model.own().norm()))
    ways: dict[str, Gather] = {
        "in_process_as_one": Here,
        "in_process": partial(Here, faults=Faults(patience=1.0)),
        "ray": ray_fleet(CLUSTER),
    }
    results, seconds = dict[str, Result](), dict[str, float]()
    for name, gather in ways.items():
        began = time.perf_counter()
        results[name] = run(method, shards, shards[0].model.own(), gather=gather)
        seconds[name] = time.perf_counter() - began
        say(f"{len(shards)} workers of {SOURCE}, {ITERATIONS} iterations, {name}: {seconds[name]:.1f} s")
    apart = (results["in_process"].solution.w - results["ray"].solution.w).abs().max()
    return {"workers": len(shards), "iterations": ITERATIONS, **seconds, "largest_difference_of_w": float(apart)}


def many_shards() -> list[Shard]:
    """Flows of UNSW-NB15, dealt out evenly."""
    data = SOURCES[SOURCE].load(data_folder())
    drawn = data.train.take(torch.randperm(len(data.train), generator=generator(0, 1))[:SAMPLES])
    dealt = [drawn.take(rows) for rows in iid(drawn.y, WORKERS, generator(0, 2))]
    parts = encode(dealt, []).shards
    model = FlatModel(fresh(lambda: mlp(parts[0].x.shape[1], HIDDEN, len(data.classes)), generator(0)))
    return [Shard(part.x, part.y, SIZE, model, i, 0, Balance.PROPORTIONAL) for i, part in enumerate(parts)]
