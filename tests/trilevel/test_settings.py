from __future__ import annotations

import pytest

from f2cto.constraints import WholeSpace
from f2cto.trilevel.master import Master
from f2cto.trilevel.settings import Hat, Penalties, Settings, StepSizes, Stopping

ETA = StepSizes(alpha=0.1, q=0.1, w=0.1, p=0.1, w_hat=0.1)


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: StepSizes(alpha=-0.1, q=0.1, w=0.1, p=0.1, w_hat=0.1), "`alpha` must be a number >= 0; got -0.1"),
        (lambda: StepSizes(alpha=0.1, q=float("nan"), w=0.1, p=0.1, w_hat=0.1), "`q`"),
        (lambda: Penalties(rho_2=-1), "`rho_2`"),
        (lambda: Hat(steps=-1), ">= 0"),
        (lambda: Hat(sync_every=1, waits=True), "would never leave w"),
        (lambda: Settings(eta=ETA, steps=-1), "R must be >= 0"),
        (lambda: Stopping(iterations=0), "at least 1 iteration"),
        (lambda: Stopping(iterations=5, tolerance=-1.0), "`tolerance`"),
        (lambda: Master(WholeSpace(), 0.1, Stopping(5), local_rounds=0), "at least 1 local round"),
    ],
)
def test_senseless_values_are_refused(make: object, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        make()  # type: ignore[operator]


def test_letter_and_lock_step() -> None:
    letter, lock_step = Hat(), Hat(sync_every=10, waits=True)
    assert all(letter.syncs(t) for t in range(30))
    assert [t for t in range(30) if lock_step.syncs(t)] == [0, 10, 20]
    assert [t for t in range(30) if Hat(sync_every=0).syncs(t)] == [0]
