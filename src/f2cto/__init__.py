"""Distributed robust coreset selection by federated first-order constrained trilevel optimisation.

>>> from f2cto import select
>>> chosen = select([(x0, y0), (x1, y1)], size=0.05)  # doctest: +SKIP
>>> chosen.indices[0]  # doctest: +SKIP
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from f2cto.attacks import Clean, Pgd, fgsm, robust_accuracy
    from f2cto.attacks.base import Range
    from f2cto.methods.f2cto_settings import F2ctoSettings
    from f2cto.selection import Selection, select
    from f2cto.training import Training, train_robust

__all__ = [
    "Clean",
    "F2ctoSettings",
    "Pgd",
    "Range",
    "Selection",
    "Training",
    "fgsm",
    "robust_accuracy",
    "select",
    "train_robust",
]

_HOMES = {
    "f2cto.attacks": ("Clean", "Pgd", "fgsm", "robust_accuracy"),
    "f2cto.attacks.base": ("Range",),
    "f2cto.selection": ("Selection", "select"),
    "f2cto.methods.f2cto_settings": ("F2ctoSettings",),
    "f2cto.training": ("Training", "train_robust"),
}


def __getattr__(name: str) -> Any:  # noqa: ANN401  (any public name)
    """A public name, imported when it is first asked for: torch takes seconds that `f2cto --help` need not wait."""
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(home), name)
    msg = f"module `f2cto` has no attribute `{name}`"
    raise AttributeError(msg)
