"""Theorems 1 and 2 and Lemma 1, measured.

Theorem 1: with all step sizes eta = T^(-1/3) and plain steps, the mean over T iterations of the squared stationarity
gap, Eq. (16), is O(T^(-2/3)). Each T is a run of its own on a smooth problem that is convex at no level but the
attacks'; the slope is fitted in log-log. Lemma 1 is looked at in each iteration of each run. Theorem 2 is a count.

The problem was chosen for its small L. A first draft (h = log cosh - cos, sin(3 alpha)) had L > 5 and L^3 > 150, so
that its short runs were outside the theorem. Its slope over T = 50 to 400 was -0.662 on the one seed tried with
these settings, and -0.671 and -0.692 on two with R = 5 and p*, q* started at zero.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.figure import Figure

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # `testing` is not installed with the package

from f2cto.randomness import generator
from f2cto.records import provenance
from f2cto.trilevel.penalty import penalised
from f2cto.trilevel.problem import Point, Refined
from f2cto.trilevel.settings import Hat, Penalties, Settings, Start, StepSizes, Stopping
from testing.problems import SmoothTrilevel, smooth_start, smooth_workers
from testing.runs import lemma_ratios, run

HORIZONS = (50, 100, 200, 400, 800, 1600, 3200)
WORKERS = 4
PENALTIES = Penalties(rho_1=2.0, rho_2=1.0, rho_3=2.0, phi=2.0)
MEANING = (
    "**The slope is no evidence for the theorem.** Once a run comes to rest, the sum of eta times the squared gap "
    "stays as it is, and the mean falls like 1/(eta T): that is arithmetic. An audit (one machine, 2026-11-19) put "
    "eta = T^-0.2, T^(-1/3) and T^(-1/2) and saw slopes of -0.80, -0.66 and -0.48. The proof leaves a step open: the "
    "value functions are refreshed in every iteration, so that the descent of Lemma 2 does not telescope. The gap also "
    "measures moves, not the distance to a solution."
)
RAW = argparse.RawDescriptionHelpFormatter
EXAMPLE = "example: python benchmarks/convergence.py --seeds 2 --longest 400 --out /tmp/convergence"


@dataclass(frozen=True)
class Measured:
    """One run of exactly `horizon` iterations."""

    seed: int
    horizon: int  # T
    mean_gap: float  # the mean over t of ||G^t||^2
    last_gap: float
    lemma: float  # the largest share of Lemma 1's bound that any iteration used


@dataclass(frozen=True)
class Findings:
    """All figures of the benchmark."""

    runs: list[Measured]
    smoothness: float  # the largest L seen
    slope: float  # of the mean over seeds
    slopes: dict[int, float]  # of each seed
    floats: dict[int, float]  # I -> floats per worker and iteration, in units of d

    @property
    def horizons(self) -> list[int]:
        """The T measured."""
        return sorted({r.horizon for r in self.runs})

    def mean_gap(self, horizon: int) -> float:
        """The mean over seeds."""
        return float(np.mean([r.mean_gap for r in self.runs if r.horizon == horizon]))

    def lemma(self, horizon: int | None = None) -> float:
        """The worst over seeds, for one T or for all."""
        return max(r.lemma for r in self.runs if horizon in {r.horizon, None})


def federation(seed: int) -> tuple[list[SmoothTrilevel], list[Point]]:
    """Workers and a start far from rest, both drawn from the seed."""
    problems = smooth_workers(WORKERS, generator(seed, 0))
    return problems, smooth_start(problems, generator(seed, 1))


def theorem_settings(horizon: int) -> Settings:
    """What Theorem 1 asks for: all step sizes T^(-1/3), plain steps, and the letter of the paper about w^."""
    eta = horizon ** (-1 / 3)
    return Settings(
        eta=StepSizes(alpha=eta, q=eta, w=eta, p=eta, w_hat=eta),
        penalties=PENALTIES,
        steps=2,
        start=Start.PREVIOUS,  # or p*, q* would start anew each time, and R short steps would not bring them near
        hat=Hat(steps=1, sync_every=1, waits=False),
    )


def measure(seed: int, horizon: int) -> Measured:
    """Theorem 1 and Lemma 1 on one run."""
    problems, start = federation(seed)
    settings = theorem_settings(horizon)
    ended = run(problems, start, settings, Stopping(iterations=horizon))
    lemma = max(lemma_ratios(ended, problems[0].sets.W, settings.eta.w))
    return Measured(seed, horizon, float(np.mean(ended.gaps)), ended.gaps[-1], lemma)


def slope_of(horizons: Sequence[int], gaps: Sequence[float]) -> float:
    """The least-squares slope of log gap over log T."""
    return float(np.polyfit(np.log(horizons), np.log(gaps), 1)[0])


def counted_floats(local_rounds: int, iterations: int = 20) -> float:
    """Theorem 2: floats exchanged with one worker, per iteration and parameter."""
    problems, start = federation(0)
    ended = run(problems, start, theorem_settings(iterations), Stopping(iterations), local_rounds)
    done = ended.solution.history[-1].iteration
    return ended.traffic.floats_per_worker / done / start[0].w.numel()


def smoothness(problems: Sequence[SmoothTrilevel], seed: int, samples: int = 25) -> float:
    """The largest spectral norm of the Hessian of L_i at random points: a lower estimate of Assumption 1's L.

    V3 and V2^(1) are taken exactly, as functions of w; the refined w^, p^ are constants, as in the algorithm.
    """
    largest = 0.0
    for draw in range(samples):
        starts = smooth_start(problems, generator(seed, 2, draw))
        inside = torch.rand((), generator=generator(seed, 3, draw), dtype=torch.float64)
        for problem, at in zip(problems, starts, strict=True):
            parts = [problem.sets.A.project(inside * at.alpha), inside * at.q, inside * at.w, inside * at.p]
            largest = max(largest, _curvature(problem, Point(*parts)))
    return largest


def _curvature(problem: SmoothTrilevel, at: Point) -> float:
    parts = [at.alpha, at.q, at.w, at.p]
    sizes = [part.numel() for part in parts]

    def objective(flat: torch.Tensor) -> torch.Tensor:
        u = Point(*torch.split_with_sizes(flat, sizes))
        q_star, p_star = problem.attacks(u.w)
        return penalised(problem, u, Refined(p_star=p_star, q_star=q_star, w_hat=at.w, p_hat=at.p), PENALTIES)

    hessian = torch.autograd.functional.hessian(objective, torch.cat(parts))  # type: ignore[no-untyped-call]
    return float(torch.linalg.matrix_norm(hessian, ord=2))


def find(seeds: int, horizons: Sequence[int]) -> Findings:
    """All runs, and what they say."""
    runs = [measure(seed, horizon) for seed in range(seeds) for horizon in horizons]
    by_seed = {seed: [r.mean_gap for r in runs if r.seed == seed] for seed in range(seeds)}
    return Findings(
        runs=runs,
        smoothness=max(smoothness(federation(seed)[0], seed) for seed in range(seeds)),
        slope=slope_of(horizons, [float(g) for g in np.mean(list(by_seed.values()), axis=0)]),
        slopes={seed: slope_of(horizons, gaps) for seed, gaps in by_seed.items()},
        floats={rounds: counted_floats(rounds) for rounds in (1, 2, 5)},
    )


def table(found: Findings) -> str:
    """The figures in Markdown."""
    rows = [
        f"| {t} | {t ** (-1 / 3):.4f} | {found.mean_gap(t):.4e} | {found.mean_gap(t) * t ** (2 / 3):.3f} "
        f"| {found.lemma(t):.3f} |"
        for t in found.horizons
    ]
    each = ", ".join(f"{slope:.3f}" for slope in found.slopes.values())
    iterations = sum(r.horizon for r in found.runs)
    least = f"L >= {found.smoothness:.2f}, L^3 >= {found.smoothness**3:.0f}"
    counts = ", ".join(f"{count:g} (I = {rounds})" for rounds, count in found.floats.items())
    lines = [
        f"# Convergence: {len(found.slopes)} seeds, {WORKERS} workers",
        "",
        "| T | eta = T^(-1/3) | mean of the squared gap | times T^(2/3) | largest share of Lemma 1's bound |",
        "|---:|---:|---:|---:|---:|",
        *rows,
        "",
        f"- Theorem 1, slope of the mean: {found.slope:.3f}. Each seed: {each}. {verdict(found)}",
        f"- The theorem speaks of T >= L^3. Sampled Hessians of Eq. (10) say {least}.",
        f"- {MEANING}",
        f"- Lemma 1: at most {found.lemma():.3f} of its bound in any of {iterations} iterations.",
        f"- Theorem 2: floats per worker, iteration and parameter: {counts}.",
    ]
    return "\n".join(lines) + "\n"


def verdict(found: Findings) -> str:
    """Whether the slope is there, in words, with how the seeds split."""
    steep = sum(slope <= -2 / 3 for slope in found.slopes.values())
    reached = "is reached" if found.slope <= -2 / 3 else "is NOT reached"
    return f"The slope -2/3 {reached} by the mean over seeds, and by {steep} of {len(found.slopes)} seeds alone."


def picture(found: Findings, path: Path) -> None:
    """Mean gap over T in log-log: each seed, their mean, the fitted line and a line of slope -2/3."""
    t = np.array(found.horizons, dtype=float)
    mean = np.array([found.mean_gap(horizon) for horizon in found.horizons])
    middle = float(np.exp(np.log(mean).mean() - found.slope * np.log(t).mean()))
    with mpl.rc_context({"svg.hashsalt": "f2cto", "font.size": 9}):
        figure = Figure(figsize=(5.2, 3.6), layout="constrained")
        axes = figure.subplots()
        for seed in found.slopes:
            axes.loglog(t, [r.mean_gap for r in found.runs if r.seed == seed], color="0.75", linewidth=0.8)
        axes.loglog(t, mean, "o", color="tab:blue", label="mean over seeds (grey: each seed)")
        axes.loglog(t, middle * t**found.slope, color="tab:blue", label=f"fit, slope {found.slope:.3f}")
        axes.loglog(t, 1.5 * mean[0] * (t / t[0]) ** (-2 / 3), "--", color="black", label="slope -2/3")
        axes.set(xlabel="iterations T", ylabel="mean of the squared gap, Eq. (16)", title="Theorem 1, eta = T^(-1/3)")
        axes.legend(frameon=False)
        figure.savefig(path, metadata={"Date": None})


def write(found: Findings, out: Path, command: Sequence[str]) -> None:
    """The three files."""
    out.mkdir(parents=True, exist_ok=True)
    about = {
        **provenance(command),
        "seeds": list(found.slopes),
        "workers": WORKERS,
        "penalties": asdict(PENALTIES),
    }
    figures = {**asdict(found), "mean_gaps": {t: found.mean_gap(t) for t in found.horizons}}
    (out / "convergence.json").write_text(json.dumps({**about, **figures}, indent=2) + "\n")
    (out / "convergence.md").write_text(table(found) + f"\nMade by `{shlex.join(command)}`.\n")
    picture(found, out / "convergence.svg")


def main(argv: Sequence[str] | None = None) -> None:
    """The command."""
    given = sys.argv[1:] if argv is None else list(argv)
    parser = argparse.ArgumentParser(description=__doc__, epilog=EXAMPLE, formatter_class=RAW)
    parser.add_argument("--out", type=Path, default=Path("results/convergence"), help="folder to write to")
    parser.add_argument("--seeds", type=int, default=5, help="problems and starts to draw (default 5)")
    parser.add_argument("--longest", type=int, default=3200, help="the longest run, 100 to 3200 (default 3200)")
    options = parser.parse_args(given)
    horizons = [t for t in HORIZONS if t <= options.longest]
    if options.seeds < 1 or len(horizons) < 2:
        parser.error("a slope needs at least one seed and two horizons: --seeds >= 1, --longest >= 100")
    torch.set_num_threads(1)
    found = find(options.seeds, horizons)
    write(found, options.out, ["python", "benchmarks/convergence.py", *given])
    print(table(found))


if __name__ == "__main__":
    main()
