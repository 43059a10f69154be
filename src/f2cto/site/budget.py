"""What a job may cost a site's privacy, where its owner asks for a bound.

Every job counts in full from the moment it is begun, finished or not, and again whenever it is begun afresh, because it
then draws other noise. Epsilons of jobs add up, and so do their deltas: an upper bound of what all of them together
tell, and not the least one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from f2cto.methods.base import Selector
from f2cto.methods.lockstep import F2cto
from f2cto.privacy import spent
from f2cto.site.rules import RefusedError, Rules


@dataclass(frozen=True)
class Price:
    """What a job costs at most."""

    answers: int  # that the site gives; each is a release
    epsilon: float  # of all of them, at the site's own delta


def price(selector: Selector, rules: Rules) -> Price | None:
    """A job's price under the rules, after checking that it is private enough; none where no bound was asked for.

    The job's own delta does not count: whoever orders a large one would have a small epsilon.
    """
    if not rules.most_epsilon and not rules.least_noise:
        return None
    if not isinstance(selector, F2cto) or not selector.settings.sharing.privacy.on:
        msg = "This site takes part in private jobs only: methods of F2CTO with `sharing.privacy.clip` above 0."
        raise RefusedError(msg)
    settings, privacy = selector.settings, selector.settings.sharing.privacy
    if privacy.noise < rules.least_noise:
        msg = f"The job has `sharing.privacy.noise` = {privacy.noise:g}, and this site asks for {rules.least_noise:g}."
        raise RefusedError(msg)
    if not rules.most_epsilon:
        return None
    answers = -(-settings.stopping.iterations // settings.local_rounds)
    found = Price(answers, spent(replace(privacy, delta=rules.delta), answers))
    check_budget(found, [], rules)
    return found


def check_budget(asked: Price, former: Iterable[float], rules: Rules) -> None:
    """Refuse a job that would cost more than is left; `former` are the epsilons of the jobs before."""
    gone = math.fsum(former)
    if not gone + asked.epsilon <= rules.most_epsilon:
        msg = (
            f"The job's {asked.answers} answers cost epsilon {asked.epsilon:.4g} at delta {rules.delta:g}; "
            f"of this site's {rules.most_epsilon:g} former jobs took {gone:.4g}."
        )
        raise RefusedError(msg)
