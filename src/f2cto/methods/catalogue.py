"""The one list of methods that the command line, the tests and the docs read."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any

from torch import Tensor

from f2cto.config import SettingsError, build, flat, plain
from f2cto.methods import acs, bcsr, easy, facility, fedcs, gcfl, greedy, herding, kcenter, variants
from f2cto.methods.acs import AcsSettings
from f2cto.methods.adbo import AdboSettings, adbo
from f2cto.methods.afto import AftoSettings, afto
from f2cto.methods.base import Given, Selector
from f2cto.methods.dtzo import Dtzo, DtzoSettings
from f2cto.methods.easy import EasySettings
from f2cto.methods.error_feedback import ErrorFeedback
from f2cto.methods.error_feedback_settings import ErrorFeedbackSettings
from f2cto.methods.f2cto.method import Sparse
from f2cto.methods.f2cto.settings import SparseSettings
from f2cto.methods.f2cto_settings import F2ctoSettings
from f2cto.methods.fedcs import FedcsSettings
from f2cto.methods.fednest import Fednest, FednestSettings
from f2cto.methods.gcfl import GcflSettings
from f2cto.methods.lockstep import F2cto
from f2cto.methods.spaces import CoverSettings
from f2cto.methods.tsg import Tsg, TsgSettings
from f2cto.methods.uniform import BALANCED, RANDOM


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
    change: Callable[[Any], Any] = lambda settings: settings  # what a variant sets, whatever the settings say


def _f2cto(change: Callable[[F2ctoSettings], F2ctoSettings], settings: F2ctoSettings, given: Given) -> F2cto:
    changed = _changed(change, settings)
    return F2cto(changed, parameter_radius(changed, given.w), given.valid, given.radius)


def _changed(change: Callable[[F2ctoSettings], F2ctoSettings], settings: F2ctoSettings) -> F2ctoSettings:
    try:
        return change(settings)
    except ValueError as error:  # settings that are sound, but not with what the variant changes
        raise SettingsError(str(error)) from error


def _variant(about: str, change: Callable[[F2ctoSettings], F2ctoSettings] = lambda settings: settings) -> Method:
    reference = "Jiao et al., First-order Constrained Trilevel Optimization Over Distributed Networks (the paper)"
    return Method(about, reference, 3, F2ctoSettings, partial(_f2cto, change), change)


OURS = {
    "f2cto": _variant("federated first-order constrained trilevel optimisation, the paper's method"),
    "f2cto+p": _variant("F2CTO with several local rounds between two exchanges", variants.periodic),
    "f2cto-places": replace(
        _variant("F2CTO whose weights stay even, read off place by place: our extension", variants.placed),
        reference="this project",
    ),
    "f2cto-top": _variant("F2CTO, its largest weights taken as they are", variants.largest),
    "f2cto-literal": _variant("F2CTO by the letter of the paper, with its printed steps", variants.literal),
    "ubv": replace(
        _variant("F2CTO without its third level: training is not attacked", variants.upper_bilevel), levels=2
    ),
    "lbv": replace(_variant("F2CTO without its first level: greedy picks", variants.lower_bilevel), levels=2),
    "f2cto-sparse": Method(
        "candidate coresets, each judged by a model trained on it: our extension",
        "this project; docs/methods.md",
        3,
        SparseSettings,
        Sparse,
    ),
    "f2cto-ef": Method(
        "our extension of F2CTO, not the paper's: class-wise error feedback",
        "this project; docs/methods.md",
        3,
        ErrorFeedbackSettings,
        ErrorFeedback,
    ),
}
FLOOR = {
    "random": Method("any samples, each as likely as the other", "folklore", 0, NoSettings, lambda *_: RANDOM),
    "balanced": Method(
        "the same number of every class, at random within it", "folklore", 0, NoSettings, lambda *_: BALANCED
    ),
}
CENTRALISED = {
    "kcenter": Method("no sample far from what is kept", "Sener & Savarese, ICLR 2018", 0, CoverSettings, kcenter.make),
    "herding": Method("the kept mean near the class's mean", "Welling, ICML 2009", 0, CoverSettings, herding.make),
    "facility": Method(
        "every sample near one that is kept", "Mirzasoleiman et al., ICML 2020", 0, CoverSettings, facility.make
    ),
    "easy": Method("lowest robust loss, class by class", "cf. Jiang et al., ICML 2018", 0, EasySettings, easy.make),
    "acs": Method("coresets of adversarial gradients", "Dolatabadi et al., IJCV 2023", 0, AcsSettings, acs.make),
    "bcsr": Method("bilevel weights, smoothed top-K", "Hao et al., NeurIPS 2023", 2, bcsr.BcsrSettings, bcsr.make),
    "greedy": Method(
        "greedy bilevel picks, kernel proxy", "Borsos et al., NeurIPS 2020", 2, greedy.GreedySettings, greedy.make
    ),
}
FEDERATED = {
    "gcfl": Method(
        "gradients matched to the federation's", "Sivasubramanian et al., WACV 2024", 0, GcflSettings, gcfl.make
    ),
    "fedcs": Method(
        "distance contrast to the federation's class centres", "Hao et al., CVPR 2025", 0, FedcsSettings, fedcs.make
    ),
    "tsg": Method("adjoint gradients through three levels", "Giovannelli et al., 2025", 3, TsgSettings, Tsg),
    "afto": Method("trilevel by two layers of mu-cuts", "Jiao et al., AAAI 2024", 3, AftoSettings, afto),
    "dtzo": Method("trilevel from function values alone", "Jiao et al., ICML 2025", 3, DtzoSettings, Dtzo),
    "adbo": Method("bilevel by cutting planes, asynchronous", "Jiao et al., ICLR 2023", 2, AdboSettings, adbo),
    "fednest": Method(
        "bilevel by a federated hypergradient", "Tarzanagh et al., ICML 2022", 2, FednestSettings, Fednest
    ),
}
METHODS: Mapping[str, Method] = MappingProxyType(OURS | FLOOR | CENTRALISED | FEDERATED)


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
        said, settings = settings, build(found.settings, settings)
        check_said(name, said, settings)
    if not isinstance(settings, found.settings):
        msg = f"`{name}` takes settings of type {found.settings.__name__} or a mapping; got {type(settings).__name__}."
        raise SettingsError(msg)
    return found.make(settings, given)


def check_said(name: str, said: Mapping[str, Any], settings: object) -> None:
    """Refuse what a user says of a method if its variant would override it; `settings` hold what was said."""
    asked, used = (flat(plain(s)) for s in (settings, _changed(method(name).change, settings)))  # type: ignore[arg-type]
    lost = [key for key in flat(said) if asked.get(key) != used.get(key)]
    if lost:
        stands, got = (", ".join(f"`{key}` = {json.dumps(of[key])}" for key in lost) for of in (used, asked))
        msg = f"`{name}` stands for {stands}; got {got}: leave out the method, or what it would override."
        raise SettingsError(msg)


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
