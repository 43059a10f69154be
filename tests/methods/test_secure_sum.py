from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from f2cto.methods.secure_sum import MODULUS, Keys, digits, numbers, total, wrapped
from f2cto.randomness import generator

LENGTH = 4000


def terms(workers: int, seed: int = 0) -> list[torch.Tensor]:
    return [torch.randn(LENGTH, generator=generator(seed, i)) for i in range(workers)]


def shares(values: list[torch.Tensor], use: int = 0) -> list[torch.Tensor]:
    keys = [Keys(i, len(values), 7) for i in range(len(values))]
    return [wrapped(digits(v) + k.ring(use, v)) for v, k in zip(values, keys, strict=True)]


@given(st.integers(1, 9), st.integers(0, 1000))
@settings(max_examples=20, deadline=None)
def test_the_sum_is_exact(workers: int, seed: int) -> None:
    """To the last digit of the fixed point, whatever the masks."""
    values = terms(workers, seed)
    hidden = total(shares(values, seed))
    assert torch.equal(hidden, total([digits(v) for v in values]))
    expected = torch.stack(values).double().sum(dim=0)
    torch.testing.assert_close(numbers(hidden, torch.float64), expected, atol=workers * 2.0**-33, rtol=0)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_fewer_than_all_shares_are_noise(number: int) -> None:
    """Uniform on [0, 2^44), and without a trace of what they hide."""
    values = terms(4)
    seen = total(shares(values)[:number]) / MODULUS
    assert float(seen.mean()) == pytest.approx(0.5, abs=4 / (12 * LENGTH) ** 0.5)
    assert float(seen.std()) == pytest.approx(12**-0.5, rel=0.05)
    hidden = torch.stack(values[:number]).sum(dim=0)
    assert abs(float(torch.corrcoef(torch.stack([seen, hidden.double()]))[0, 1])) < 4 / LENGTH**0.5


def test_a_mask_is_used_once() -> None:
    value = [torch.zeros(LENGTH)] * 3
    for one, two in zip(shares(value, 0), shares(value, 1), strict=True):
        assert float((one == two).double().mean()) < 0.01


def test_only_the_reader_takes_the_mask_off() -> None:
    value = torch.randn(LENGTH, generator=generator(3))
    sender, reader, other = (Keys(i, 3, 7) for i in range(3))
    hidden = wrapped(digits(value) + sender.mask(1, 0, value))
    seen = numbers(wrapped(hidden - reader.masked_by(0, 0, hidden)), torch.float64)
    torch.testing.assert_close(seen, value.double(), atol=2.0**-33, rtol=0)
    noise = numbers(wrapped(hidden - other.masked_by(0, 0, hidden)), torch.float64)
    assert float(noise.abs().mean()) > 500  # uniform on +-2048


@pytest.mark.parametrize("value", [3000.0, float("nan"), float("inf")])
def test_what_does_not_fit_is_refused(value: float) -> None:
    with pytest.raises(ArithmeticError, match="entries below 2048 in size; got"):
        digits(torch.tensor([0.0, value]))
