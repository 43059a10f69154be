"""What an iteration costs beside the bare passes through the model that its equations need."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch

from f2cto.bench.measure import Running, Say, interleaved, random_shards
from f2cto.methods.base import Shard
from f2cto.methods.f2cto_settings import F2ctoSettings, Perturbation
from f2cto.methods.f2cto_stages import Team
from f2cto.methods.lockstep import CoresetProgram, F2cto
from f2cto.models import FlatModel, fresh, mlp
from f2cto.randomness import generator
from f2cto.resnet import resnet18
from f2cto.trilevel.coreset import RobustCoreset
from f2cto.trilevel.program import Stage
from f2cto.trilevel.slopes import Readable
from f2cto.trilevel.stationarity import moves, stationarity_gap

CASES: dict[str, tuple[Callable[[], torch.nn.Module], tuple[int, ...], list[int], int]] = {
    # name: network, sample, shards, R
    "mlp": (lambda: mlp(784, (256, 256), 10), (784,), [600] * 5, 10),
    "resnet18": (lambda: resnet18(3, 10, width=20), (3, 32, 32), [64] * 2, 3),
}


def iteration(repeats: int, say: Say) -> dict[str, dict[str, float]]:
    """Ratios of an iteration to its bare passes and of the readable form to the fast one, per network."""
    results = {}
    for name, (make, shape, counts, steps) in CASES.items():
        model = FlatModel(fresh(make, generator(0)))
        results[name] = ratios(random_shards(model, shape, counts, 10), steps, repeats)
        say(f"{name}: " + ", ".join(f"{key} {value:.3f}" for key, value in results[name].items()))
    return results


def ratios(shards: list[Shard], steps: int, repeats: int) -> dict[str, float]:
    """All ratios for one network, measured in one run."""
    settings = F2ctoSettings(perturbation=Perturbation(steps=steps, ramp=0))
    method = F2cto(settings, radius=1e6)
    model, x, y = shards[0].model, torch.cat([s.x for s in shards]), torch.cat([s.y for s in shards])
    seconds = interleaved(
        {
            "fast": Running(method, shards).iterate,
            "bare": lambda: bare(model, x, y, steps, 2),
            "unshared": Running(method, shards, changed(method, unshared)).iterate,
            "bare unshared": lambda: bare(model, x, y, 2 * steps, 3),
            "literal": Running(method, shards, changed(method, literal, together=False)).iterate,
            "diagnostics": diagnostics(method, shards),
        },
        repeats,
    )
    return {
        "over_bare": seconds["fast"] / seconds["bare"],
        "over_bare_unshared": seconds["unshared"] / seconds["bare unshared"],
        "literal_over_fast": seconds["literal"] / seconds["fast"],
        "literal_over_fast_unshared": seconds["literal"] / seconds["unshared"],
        "diagnostics_share": seconds["diagnostics"] / seconds["fast"],
        "seconds": seconds["fast"],
    }


def diagnostics(method: F2cto, shards: list[Shard]) -> Callable[[], None]:
    """All that an iteration does only to tell how it gets on: the objective, the gap and the robust accuracy."""
    team = Team(tuple(shards))
    stage, at, w = method.stages()(team, 0), method.stages().initial(team), shards[0].model.own()
    problem, eta = stage.problem, stage.settings.eta
    assert isinstance(problem, RobustCoreset)  # noqa: S101  (what F2cto's stages are made of)
    alpha, hits = problem.sets.A.project(at.alpha), team.y > 0

    def tell() -> None:
        float(alpha @ problem.every + problem.topk.value(alpha))
        stationarity_gap([moves(at, replace(at, alpha=alpha), eta, exact=True)], w, w, eta.w)
        float(hits.double().mean())

    return tell


def bare(model: FlatModel, x: torch.Tensor, y: torch.Tensor, attacks: int, parameters: int) -> None:
    """The passes of one iteration in lock-step and nothing else.

    Input gradients for each attack step; parameter gradients for w^ and for w at its perturbations (one where p* and
    q* are one, else two); one forward pass at w^.
    """
    w = model.own()
    for _ in range(attacks):
        d = x.detach().requires_grad_()
        torch.autograd.grad(model.losses(w, d, y).sum(), d)
    for _ in range(parameters):
        leaf = w.detach().requires_grad_()
        torch.autograd.grad(model.losses(leaf, x, y).sum(), leaf)
    with torch.no_grad():
        model.losses(w, x, y)


def unshared(stage: Stage) -> Stage:
    """The same stage with a refinement of its own for p* and for q*."""
    return replace(stage, settings=replace(stage.settings, shared_refinement=False))


def literal(stage: Stage) -> Stage:
    """The same stage by autograd of the printed definitions."""
    return replace(unshared(stage), problem=Readable(stage.problem))


def changed(method: F2cto, change: Callable[[Stage], Stage], *, together: bool = True) -> CoresetProgram:
    """The method's program with a change made to every stage."""
    return CoresetProgram(method.stages(), change, together=together)
