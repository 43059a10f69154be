"""The paper's rows beside F2CTO, each a function from F2CTO's settings to F2CTO's settings.

What a variant does not speak of stays as it was set: iterations, attacks and steps are those of the row it is compared
with. Yang Jiao et al.: First-order Constrained Trilevel Optimization Over Distributed Networks for Robust Coreset
Selection, questions 2 and 5 and the table of settings.
"""

from __future__ import annotations

from dataclasses import replace

from f2cto.methods.f2cto_settings import Choice, F2ctoSettings, Form, StepRule, Unit, WeightRule
from f2cto.methods.screening import Screening
from f2cto.trilevel.settings import Penalties

PERIOD = 5  # I of the paper's periodic variant


def upper_bilevel(settings: F2ctoSettings) -> F2ctoSettings:
    """UBV: the third level is removed, training is not attacked; the attacks that the first level sees stay."""
    return replace(settings, perturbation=replace(settings.perturbation, train_radius=0.0))


def lower_bilevel(settings: F2ctoSettings) -> F2ctoSettings:
    """LBV: the first level is removed, weights stay uniform; samples are picked greedily with the trained model."""
    return replace(settings, weighting=replace(settings.weighting, frozen=True), choice=Choice.GREEDY)


def periodic(settings: F2ctoSettings) -> F2ctoSettings:
    """F2CTO+P: several local rounds between two exchanges; five, unless the settings ask for more than one."""
    return settings if settings.local_rounds > 1 else replace(settings, local_rounds=PERIOD)


def largest(settings: F2ctoSettings) -> F2ctoSettings:
    """F2CTO whose coresets are the largest weights on average, of all samples: nothing is sent to read them off."""
    return replace(settings, choice=Choice.AVERAGE, screening=Screening())


def placed(settings: F2ctoSettings) -> F2ctoSettings:
    """No first level but the reading: weights stay even, and coresets are read off place by place."""
    return replace(settings, weighting=replace(settings.weighting, frozen=True), choice=Choice.PLACES)


def literal(settings: F2ctoSettings) -> F2ctoSettings:
    """The letter of the paper, with what its table of settings prints for Permuted MNIST.

    Printed are the step sizes, R, R^ and c2, and Eqs. (7)-(14) as plain gradient steps: weights on one simplex per
    worker, perturbations with steps of their own, w^ restarted from w in each iteration. Not printed are lambda, delta,
    T, rho and phi. The first three are those of `settings`; the others must make the perturbations attack (rho_1 > 1,
    rho_3 > rho_2, phi > 1). The radii c1 and c3 belong to the task and stay, too.

    In one place the printed steps do not bear the letter: f1 is a sum over samples, so that eta_w = 5e-3 on 600 of them
    is a step of 3 on their mean loss, and w bounces between models that predict one class. Here f1 is the mean; that is
    the letter in other units, rho and the objective divided by the number of samples.
    """
    return replace(
        settings,
        weighting=replace(
            settings.weighting, step=2e-2, unit=Unit.ABSOLUTE, rule=WeightRule.PLAIN, classwise=False, frozen=False
        ),
        proxy=replace(
            settings.proxy, step=5e-3, hat_step=5e-3, hat_steps=1, sync_every=1, waits=False, radius=5.0, sums=False
        ),
        perturbation=replace(
            settings.perturbation, steps=10, step=8e-3, rule=StepRule.PLAIN, ramp=0, form=Form.PENALTY
        ),
        penalties=Penalties(rho_1=2.0, rho_2=10.0, rho_3=20.0, phi=2.0),
        choice=Choice.TOP,
        screening=Screening(),
    )
