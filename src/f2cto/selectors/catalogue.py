"""The one list of methods that the command line, the tests and the docs read."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from torch import Tensor

from f2cto.config import SettingsError, build
from f2cto.selectors.base import Given, Selector
from f2cto.selectors.f2cto import F2cto
from f2cto.selectors.f2cto_settings import F2ctoSettings
from f2cto.selectors.uniform import BALANCED, RANDOM

PAPER = "Jiao et al., First-order Constrained Trilevel Optimization Over Distributed Networks (F2CTO)"


@dataclass(frozen=True)
class NoSettings:
    """For methods that can be told nothing."""


@dataclass(frozen=True)
class Method:
    """A method by name: what it is, where it comes from, what it can be told and how it is made."""

    about: str  # in a line
    reference: str
    levels: int  # of the optimisation problem it solves; 0: it optimises nothing
    settings: type[Any]  # a dataclass
    make: Callable[[Any, Given], Selector]  # from such settings


def _f2cto(settings: F2ctoSettings, given: Given) -> F2cto:
    return F2cto(settings, parameter_radius(settings, given.w), given.valid)


METHODS: Mapping[str, Method] = MappingProxyType(
    {
        "f2cto": Method(
            "federated first-order constrained trilevel optimisation, the paper's method",
            PAPER,
            3,
            F2ctoSettings,
            _f2cto,
        ),
        "random": Method("any samples, each as likely as the other", "folklore", 0, NoSettings, lambda *_: RANDOM),
        "balanced": Method(
            "the same number of every class, at random within it", "folklore", 0, NoSettings, lambda *_: BALANCED
        ),
    }
)


def method(name: str) -> Method:
    """A method by name."""
    if name not in METHODS:
        msg = f"There is no method `{name}`; there are {', '.join(METHODS)}."
        raise SettingsError(msg)
    return METHODS[name]


def make_selector(name: str, settings: object, given: Given) -> Selector:
    """A method by name, ready to run; settings are its own, or a mapping of what differs from the defaults."""
    found = method(name)
    if isinstance(settings, Mapping):
        settings = build(found.settings, settings)
    if not isinstance(settings, found.settings):
        msg = f"`{name}` takes settings of type {found.settings.__name__} or a mapping; got {type(settings).__name__}."
        raise SettingsError(msg)
    return found.make(settings, given)


def parameter_radius(settings: F2ctoSettings, w: Tensor) -> float:
    """The bound on the norm of w; a warning where it cuts into the initial parameters."""
    norm = float(w.norm())
    radius = settings.proxy.radius or 2 * norm
    if norm > radius * (1 + 1e-6):
        warnings.warn(
            f"The initial parameters have norm {norm:.3g}, above `proxy.radius` = {radius:g}: they are scaled down "
            "before the first step, and the proxy may train poorly.",
            stacklevel=3,
        )
    return radius
