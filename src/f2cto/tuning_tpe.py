"""The tree-structured Parzen estimator, by Optuna: Bergstra et al., Algorithms for Hyper-Parameter Optimization."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from f2cto.config import SettingsError
from f2cto.tuning_spaces import Dimension, Kind, Value

STARTUP = 8  # trials at random before the estimator has a say


def library() -> Any:  # noqa: ANN401  (a module)
    """Optuna, told to be quiet."""
    try:
        import optuna  # noqa: PLC0415
    except ImportError as error:
        msg = "The sampler `tpe` is Optuna's; install it with `pip install f2cto[tune]`, or use `random`."
        raise SettingsError(msg) from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def by_estimator(known: Sequence[tuple[Sequence[Value], float]], space: Sequence[Dimension], seed: int) -> list[Value]:
    """The next point to try, given points and their scores, the higher the better."""
    optuna = library()
    ranges = {dimension.key: _range(optuna, dimension) for dimension in space}
    sampler = optuna.samplers.TPESampler(seed=seed % 2**32, n_startup_trials=STARTUP)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    for values, score in known:
        params = dict(zip(ranges, values, strict=True))
        study.add_trial(optuna.trial.create_trial(params=params, distributions=ranges, value=score))
    asked = study.ask(ranges).params
    return [dimension.rounded(asked[dimension.key]) for dimension in space]


def _range(optuna: Any, dimension: Dimension) -> Any:  # noqa: ANN401
    kinds = optuna.distributions
    if dimension.kind is Kind.CHOICE:
        return kinds.CategoricalDistribution(dimension.options)
    if dimension.kind is Kind.WHOLE:
        return kinds.IntDistribution(int(dimension.low), int(dimension.high))
    return kinds.FloatDistribution(dimension.low, dimension.high, log=dimension.kind is Kind.LOG)
