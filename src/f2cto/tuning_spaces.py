"""What a search over settings may change: for every method the few settings that matter, and how far they may go.

Ranges are a decade or so around the defaults where settings are steps and penalties, and about half to twice the
default where they are work. What a method is (its levels, its attacks' radii, what it may send) is nobody's to tune.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any

Value = bool | int | float | str


class Kind(StrEnum):
    """How values lie between the ends of a range."""

    LOG = "log"  # every factor as likely
    UNIFORM = "uniform"
    WHOLE = "whole"  # whole numbers
    CHOICE = "choice"  # one of a few


@dataclass(frozen=True)
class Dimension:
    """One thing to choose: a setting, and those that follow from it."""

    key: str  # dotted, within the method's settings
    kind: Kind
    low: float = 0.0
    high: float = 0.0  # included
    options: tuple[Value, ...] = ()
    follows: Mapping[str, Callable[[Any], Value]] = field(default_factory=dict)

    def at(self, share: float) -> Value:
        """The value at a share of the way, from 0 for the lowest (or first) to 1 for the highest (or last)."""
        if self.kind is Kind.CHOICE:
            return self.options[min(int(share * len(self.options)), len(self.options) - 1)]
        if self.kind is Kind.WHOLE:
            return min(int(self.low + share * (self.high - self.low + 1)), int(self.high))
        if self.kind is Kind.LOG:
            return self.rounded(self.low * (self.high / self.low) ** share)
        return self.rounded(self.low + share * (self.high - self.low))

    def rounded(self, value: Value) -> Value:
        """A value with four digits: what is found should be readable, and no more digits matter."""
        return float(f"{value:.4g}") if isinstance(value, float) and self.kind is not Kind.CHOICE else value

    def holds(self, value: object) -> bool:
        """Whether a value lies within."""
        if self.kind is Kind.CHOICE:
            return value in self.options
        whole = isinstance(value, int) and not isinstance(value, bool)
        number = whole or (isinstance(value, float) and self.kind is not Kind.WHOLE)
        return number and self.low <= value <= self.high  # type: ignore[operator]  # it is a number

    def changes(self, value: Value) -> dict[str, Value]:
        """The settings that a value stands for."""
        return {self.key: value} | {key: rule(value) for key, rule in self.follows.items()}

    def __str__(self) -> str:
        """In words, for tables."""
        keys = " ".join(f"`{key}`" for key in (self.key, *self.follows))
        if self.kind is Kind.CHOICE:
            return f"{keys} {'/'.join(map(_word, self.options))}"
        return f"{keys} {self.low:g}–{self.high:g}{' (log)' if self.kind is Kind.LOG else ''}"


def _word(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value}"


def _log(key: str, low: float, high: float, **follows: Callable[[Any], Value]) -> Dimension:
    return Dimension(key, Kind.LOG, low, high, follows=follows)


def _uniform(key: str, low: float, high: float) -> Dimension:
    return Dimension(key, Kind.UNIFORM, low, high)


def _whole(key: str, low: int, high: int, **follows: Callable[[Any], Value]) -> Dimension:
    return Dimension(key, Kind.WHOLE, low, high, follows=follows)


def _choice(key: str, *options: Value) -> Dimension:
    return Dimension(key, Kind.CHOICE, options=options)


def _pretraining(fewest: int, most: int) -> tuple[Dimension, ...]:
    """The shared model that lifted methods choose with."""
    return _whole("pretraining.rounds", fewest, most), _log("pretraining.local.rate", 0.02, 0.5)


def _same(value: Value) -> Value:
    return value


F2CTO = (
    _log("weighting.step", 0.01, 0.25),
    _log("weighting.topk", 0.03, 3.0),
    _log("weighting.noise", 0.02, 0.5),
    # In step with w as long as it is (1 + rho_2) times w's step, and rho_2 = 1.
    _log("proxy.step", 0.02, 0.5, **{"proxy.hat_step": lambda step: 2 * step}),
    _whole("proxy.sync_every", 2, 30),  # at 1 a w^ that waits would never leave w
    _whole("stopping.iterations", 50, 250),
)
ERROR_FEEDBACK = (
    _choice("target", "all", "kept"),
    _whole("filtering.rounds", 30, 180, **{"filtering.since": lambda rounds: rounds // 3}),
    _uniform("filtering.least", 0.1, 0.9),
    _whole("proxies.count", 1, 6),
    _whole("proxies.steps", 5, 60),
    _whole("feedback.sweeps", 1, 4),
)
COVER = (_choice("space", "inputs", "features"), _choice("classwise", True, False), *_pretraining(2, 40))  # noqa: FBT003
BCSR = (
    _whole("outer_steps", 2, 40),
    _log("inner_step", 0.01, 1.0),
    _log("weight_step", 0.002, 0.5),
    _log("topk", 0.01, 1.0),
    _log("noise", 1e-4, 0.1),
    _whole("pretraining.rounds", 1, 20),
)
GREEDY = (
    _choice("kernel", "auto", "features"),
    _log("penalty", 1e-5, 0.1),
    _whole("candidates", 50, 400),
    _whole("weight_steps", 0, 5),
    _log("weight_step", 1e-3, 0.3),
    _whole("pretraining.rounds", 2, 40),
)
GCFL = (_choice("pick", "aligned", "nearest"), _log("ridge", 0.01, 5.0), *_pretraining(2, 40))
ACS = (
    _choice("variant", "craig", "gradmatch"),
    _whole("attack_steps", 1, 20),
    _choice("ridge", 0.0, 0.01, 0.1, 0.5, 1.0),
    *_pretraining(1, 20),
)
TSG = (
    _whole("iterations", 25, 100),
    _log("levels.upper", 0.005, 0.5),
    _log("levels.middle", 0.02, 0.5),
    _whole("levels.lower_steps", 1, 6),
    _log("softness.attack", 0.1, 10.0),
    _choice("topk", 0.0, 0.03, 0.1, 0.3, 1.0),
)
AFTO = (
    _whole("iterations", 50, 200),
    _log("model_step", 0.02, 0.5, shared_step=_same),
    _log("weights.step", 0.1, 10.0),
    _log("weights.topk", 0.01, 1.0),
    _log("attacks.penalty", 0.1, 10.0),
    _log("duals.step", 1.0, 100.0),
)
DTZO = (
    _whole("iterations", 30, 120),
    _log("model_step", 1e-7, 1e-5),
    _log("weights.step", 0.1, 10.0),
    _log("weights.topk", 1e-3, 0.1),
    _log("attacks.penalty", 0.1, 10.0),
    _whole("smoothing.directions", 1, 4),
)
ADBO = (
    _whole("iterations", 50, 200),
    _log("model_step", 0.02, 0.5, shared_step=_same),
    _log("weights.step", 0.1, 10.0),
    _log("weights.topk", 0.01, 1.0),
    _whole("attack_steps", 1, 10),
    _log("duals.step", 1.0, 100.0),
)
FEDNEST = (
    _whole("nesting.rounds", 10, 50),
    _whole("nesting.inner_steps", 1, 10),
    _log("nesting.eta", 0.005, 0.5),
    _log("model_step", 0.02, 0.5),
    _log("weights.step", 0.1, 10.0),
    _log("weights.topk", 0.01, 1.0),
)
PLACES = (
    _log("proxy.step", 0.02, 0.5, **{"proxy.hat_step": lambda step: 2 * step}),
    _log("reading.probe", 0.1, 1.0),
    _whole("reading.rounds", 1, 5),
    _whole("stopping.iterations", 30, 250),
)
SPACES: Mapping[str, Sequence[Dimension]] = MappingProxyType(
    {
        "f2cto": F2CTO,
        "f2cto+p": F2CTO,
        "f2cto-places": PLACES,
        "f2cto-top": F2CTO,
        "f2cto-literal": (),  # its steps are the printed ones
        "ubv": F2CTO,
        "lbv": F2CTO,
        "f2cto-sparse": (),  # what must differ from task to task it chooses itself
        "f2cto-ef": ERROR_FEEDBACK,
        "random": (),
        "balanced": (),
        "kcenter": COVER,
        "herding": COVER,
        "facility": COVER,
        "easy": (_whole("attack_steps", 0, 20), _choice("classwise", True, False), *_pretraining(2, 40)),  # noqa: FBT003
        "acs": ACS,
        "bcsr": BCSR,
        "greedy": GREEDY,
        "gcfl": GCFL,
        "fedcs": (_uniform("last", 0.0, 0.6), _whole("pretraining.local.steps", 5, 60), *_pretraining(1, 20)),
        "tsg": TSG,
        "afto": AFTO,
        "dtzo": DTZO,
        "adbo": ADBO,
        "fednest": FEDNEST,
    }
)
