"""The one list of methods that the command line, the tests and the docs read."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from torch import Tensor

from f2cto.attacks.base import Range
from f2cto.config import SettingsError
from f2cto.selectors.base import Selector
from f2cto.selectors.f2cto import F2cto
from f2cto.selectors.f2cto_settings import F2ctoSettings
from f2cto.selectors.uniform import BALANCED, RANDOM

Make = Callable[[F2ctoSettings, Tensor, Range], Selector]  # from settings, initial parameters and valid range


@dataclass(frozen=True)
class Method:
    """A method by name: what it is, in a line, and how it is made."""

    about: str
    make: Make


def _f2cto(settings: F2ctoSettings, w: Tensor, valid: Range) -> F2cto:
    return F2cto(settings, parameter_radius(settings, w), valid)


METHODS: Mapping[str, Method] = MappingProxyType(
    {
        "f2cto": Method("federated first-order constrained trilevel optimisation, the paper's method", _f2cto),
        "random": Method("any samples, each as likely as the other", lambda *_: RANDOM),
        "balanced": Method("the same number of every class, at random within it", lambda *_: BALANCED),
    }
)


def make_selector(name: str, settings: F2ctoSettings, w: Tensor, valid: Range) -> Selector:
    """A method by name, ready to run."""
    if name not in METHODS:
        msg = f"There is no method `{name}`; there are {', '.join(METHODS)}."
        raise SettingsError(msg)
    return METHODS[name].make(settings, w, valid)


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
