"""The settings of F2CTO in words, with the defaults that were measured to work ("lock-step", docs/settings.md)."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, replace
from enum import StrEnum

from f2cto.hardware import Precision
from f2cto.methods.screening import Screening
from f2cto.privacy import Privacy
from f2cto.trilevel.aggregation import Aggregation
from f2cto.trilevel.settings import Penalties, Start, Stopping


class Unit(StrEnum):
    """What step and noise of the weights are measured in."""

    KEPT = "kept"  # the weight 1/K of one kept sample
    ABSOLUTE = "absolute"  # the letter


class WeightRule(StrEnum):
    """How the lower levels' say about the weights is scaled."""

    STANDARDISED = "standardised"  # centred, unit deviation and clipped within each class
    PLAIN = "plain"  # the letter


class StepRule(StrEnum):
    """How perturbations step."""

    SIGN = "sign"
    PLAIN = "plain"  # the letter


class Form(StrEnum):
    """What perturbations are."""

    EXACT = "exact"  # kept at the refined maximisers
    PENALTY = "penalty"  # variables with steps of their own: the letter


class Choice(StrEnum):
    """How the coreset is read off at the end."""

    TOP = "top"  # the largest weights of the last iteration
    AVERAGE = "average"  # the largest weights on average, later iterations counting more
    GREEDY = "greedy"  # samples whose robust gradients add up to the weighted ones, each worker for itself
    PLACES = "places"  # the same for all workers together, who fill their places in turns (`reading.py`); between
    # organisations, and where messages are private, as `average`


@dataclass(frozen=True)
class Weighting:
    """Level 1: the weights of the samples."""

    step: float = 0.05
    topk: float = 0.3  # lambda
    noise: float = 0.1  # delta, the deviation of the smoothing noise
    draws: int = 50
    unit: Unit = Unit.KEPT
    rule: WeightRule = WeightRule.STANDARDISED
    classwise: bool = True  # one simplex per class instead of one per worker
    frozen: bool = False

    def __post_init__(self) -> None:
        """Refuse values the level cannot work with."""
        if self.draws < 1:
            msg = f"The smoothed top-K term needs draws >= 1; got {self.draws}."
            raise ValueError(msg)
        if min(self.step, self.topk, self.noise) < 0:
            msg = f"Step, topk and noise of the weights must be >= 0; got {self.step}, {self.topk}, {self.noise}."
            raise ValueError(msg)


@dataclass(frozen=True)
class Proxy:
    """Level 2: the model that is trained while samples are weighed."""

    step: float = 0.1
    hat_step: float = 0.2
    hat_steps: int = 1
    sync_every: int = 10
    waits: bool = True
    radius: float = 0.0  # bound on the norm of the parameters; 0: twice their initial norm
    sums: bool = False  # sum the loss over samples as the paper does, instead of the mean

    def __post_init__(self) -> None:
        """Refuse a ball without points."""
        if not self.radius >= 0:
            msg = f"The radius of the parameters must be >= 0; got {self.radius}."
            raise ValueError(msg)


@dataclass(frozen=True)
class Perturbation:
    """Levels 2 and 3: the attacks on the proxy model."""

    eval_radius: float = -1.0  # below 0: that of the task
    train_radius: float = -1.0  # the same; 0: no third level (the upper-bilevel variant)
    steps: int = 3
    step: float = 0.0  # 0: 2.5 radii over all steps
    rule: StepRule = StepRule.SIGN
    start: Start = Start.ZERO
    ramp: int = 20  # iterations until the full radius
    form: Form = Form.EXACT
    precision: Precision = Precision.AUTO  # the numbers that input gradients are computed with

    def __post_init__(self) -> None:
        """Refuse impossible attacks and warn of those that cannot reach the border of their ball."""
        if min(self.step, self.steps, self.ramp) < 0:
            msg = "Steps, step and ramp of the perturbations must be >= 0."
            raise ValueError(msg)
        widest = max(self.eval_radius, self.train_radius)
        fresh = self.start is Start.ZERO
        if self.rule is StepRule.SIGN and fresh and self.step and self.steps * self.step < widest * (1 - 1e-9):
            warnings.warn(
                f"{self.steps} perturbation steps of {self.step:g} from zero reach {self.steps * self.step:g}, short "
                f"of the radius {widest:g}; the attacks of levels 2 and 3 are weaker than the ball allows.",
                stacklevel=2,
            )

    def within(self, radius: float) -> Perturbation:
        """The same with the task's radius where none is set."""
        own = (self.eval_radius, self.train_radius)
        eval_radius, train_radius = (r if r >= 0 else radius for r in own)
        return replace(self, eval_radius=eval_radius, train_radius=train_radius) if min(own) < 0 else self

    @property
    def one_problem(self) -> bool:
        """Whether p* and q* are the same maximisers, step by step, so that one refinement serves both."""
        same_start = self.start is not Start.RANDOM
        same_ball = self.eval_radius == self.train_radius
        return self.form is Form.EXACT and self.rule is StepRule.SIGN and same_ball and same_start

    def step_size(self, radius: float, scale: float) -> float:
        """The step for a ball that has grown to `scale` of its radius."""
        if self.step:
            return self.step
        return 2.5 * radius * scale / self.steps if self.steps else 0.0

    def scale(self, t: int) -> float:
        """The share of the full radius in iteration t."""
        return min(1.0, (t + 1) / self.ramp) if self.ramp else 1.0


@dataclass(frozen=True)
class Reading:
    """After the last iteration: how places are filled, if the choice is `places`."""

    turns: int = 5  # workers of a class that come one after the other before the first comes again
    rounds: int = 2  # of turns, in each of which a worker fills its share of its places of a class
    candidates: int = 500  # samples of a class, on a worker, that may be taken: those with most weight
    probe: float = 0.5  # h, the length of the step by which losses show a gradient's direction

    def __post_init__(self) -> None:
        """Refuse to leave places empty."""
        if min(self.turns, self.rounds, self.candidates) < 1 or not self.probe > 0:
            msg = f"Reading places needs turns, rounds and candidates >= 1 and a probe > 0; got {self}."
            raise ValueError(msg)


class WorkerWeights(StrEnum):
    """How much each worker counts in the master's means."""

    EQUAL = "equal"  # the paper
    SAMPLES = "samples"  # as much as it has samples, whose number it then tells


@dataclass(frozen=True)
class Sharing:
    """What workers send, and what the master makes of it."""

    exchanges: int = 2  # an iteration; 1: w and w^ travel in one message, with the same result if local_rounds = 1
    weights: WorkerWeights = WorkerWeights.EQUAL
    aggregation: Aggregation = field(default_factory=Aggregation)
    privacy: Privacy = field(default_factory=Privacy)

    @property
    def usual(self) -> bool:
        """Whether plain means are taken of plain vectors, in however many exchanges."""
        return self == Sharing(exchanges=self.exchanges)

    def __post_init__(self) -> None:
        """Refuse other numbers of exchanges than there are."""
        if self.exchanges not in {1, 2}:
            msg = f"An iteration has 2 exchanges, or 1; got {self.exchanges}."
            raise ValueError(msg)
        if self.privacy.on and self.exchanges == 2:
            msg = "Private messages hold w and w^ at once; set `sharing.exchanges = 1` beside `sharing.privacy.clip`."
            raise ValueError(msg)
        if self.privacy.on and self.weights is WorkerWeights.SAMPLES:
            msg = 'Private messages hold no numbers of samples; use `sharing.weights = "equal"` with `sharing.privacy`.'
            raise ValueError(msg)


@dataclass(frozen=True)
class F2ctoSettings:
    """All of F2CTO. Variants are values here: UBV is `perturbation.train_radius = 0`, LBV is `weighting.frozen`
    with `choice = "greedy"`, F2CTO+P is `local_rounds > 1`.
    """  # noqa: D205

    weighting: Weighting = field(default_factory=Weighting)
    proxy: Proxy = field(default_factory=Proxy)
    perturbation: Perturbation = field(default_factory=Perturbation)
    penalties: Penalties = field(default_factory=Penalties)
    stopping: Stopping = field(default_factory=lambda: Stopping(iterations=250))
    local_rounds: int = 1
    choice: Choice = Choice.PLACES
    screening: Screening = field(default_factory=Screening)
    reading: Reading = field(default_factory=Reading)
    sharing: Sharing = field(default_factory=Sharing)

    @property
    def reads_places(self) -> bool:
        """Whether workers read their coresets off together; private answers tell too little for that."""
        return self.choice is Choice.PLACES and not self.sharing.privacy.on

    def __post_init__(self) -> None:
        """Refuse penalties under which perturbations would help the model instead of attacking it."""
        if self.perturbation.form is Form.PENALTY:
            _check_adversarial(self.penalties)
        if self.local_rounds < 1:
            msg = f"`local_rounds` must be at least 1; got {self.local_rounds}."
            raise ValueError(msg)
        if self.screening.rounds >= self.stopping.iterations:
            msg = f"All {self.stopping.iterations} iterations would go to `screening.rounds` = {self.screening.rounds}."
            raise ValueError(msg)
        if self.sharing.exchanges == 1 and not (self.perturbation.form is Form.EXACT and self.proxy.waits):
            msg = (
                "With one exchange an iteration w^ has made its step before the next w is known; that needs "
                '`perturbation.form = "exact"` and `proxy.waits = true`. Use `sharing.exchanges = 2`.'
            )
            raise ValueError(msg)


def _check_adversarial(c: Penalties) -> None:
    """In L_i the loss has the factor 1 - rho_1 in q and rho_2 - rho_3 in p, and in g2 it has 1 - phi."""
    tail = (
        "would make the perturbations help the model rather than attack it; "
        'raise it, or use `perturbation.form = "exact"`.'
    )
    if c.rho_1 <= 1:
        msg = f"`penalties.rho_1` must exceed 1: {c.rho_1:g} {tail}"
        raise ValueError(msg)
    if c.rho_3 <= c.rho_2:
        msg = f"`penalties.rho_3` must exceed `penalties.rho_2` = {c.rho_2:g}: {c.rho_3:g} {tail}"
        raise ValueError(msg)
    if c.phi <= 1:
        msg = f"`penalties.phi` must exceed 1: {c.phi:g} {tail}"
        raise ValueError(msg)
