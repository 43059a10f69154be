"""What a site allows: which methods, how large a job, how private, and what may be in an answer.

A refusal says what the site was started with and how many samples it has, which `hello` tells anyway, and nothing else
of the data.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from f2cto.attacks.base import Range
from f2cto.config import flat
from f2cto.message import Message
from f2cto.methods.base import Selector
from f2cto.methods.lockstep import F2cto
from f2cto.selection import coreset_sizes
from f2cto.site.job import Job, parameters
from f2cto.site.schema import Schema

# What workers send. A method belongs to one of the two; what is in neither runs at no site.
PARAMETERS_ONLY = frozenset(  # vectors as long as the model's parameters and a few numbers
    {
        *{
            "f2cto",
            "f2cto+p",
            "f2cto-sparse",
            "f2cto-literal",
            "f2cto-top",
            "ubv",
            "lbv",
            "random",
            "balanced",
            "kcenter",
            "herding",
        },
        *{"facility", "easy", "acs", "bcsr", "greedy", "tsg", "afto", "dtzo", "adbo", "fednest"},
    }
)
CLASS_SUMS = frozenset({"f2cto-ef", "f2cto-places", "gcfl", "fedcs"})  # sums, means or counts over classes as well
SCALARS = 16  # numbers in an answer at most, where no sums over classes are allowed
SCORES = {"f2cto-sparse": 64}  # the same for methods that send sums of scores, two for every candidate


class RefusedError(ValueError):
    """What a site does not do; the text is one sentence that the master may read."""


class Allowance(StrEnum):
    """What a site may send beyond parameters and scalar metrics, if its owner says so."""

    CLASS_SUMS = "class-sums"


@dataclass(frozen=True)
class Rules:
    """A site's own settings; no master can change them."""

    allowed: frozenset[Allowance] = frozenset()
    most: float = 0.5  # the largest share of its samples that a site keeps
    parameters: int = 50_000_000  # of a network
    count: int = 10_000  # the largest whole number in a method's settings: iterations, steps, draws
    range: Range = field(default_factory=Range)  # of features; what is fixed in it is the job's affair
    least_noise: float = 0.0  # the smallest noise multiplier of a private job; 0: not asked for
    most_epsilon: float = 0.0  # of all jobs together; 0: not asked for
    delta: float = 1e-5  # of each job, where epsilon is asked for

    def __post_init__(self) -> None:
        """Refuse rules under which nothing could run."""
        if not 0 < self.most <= 1 or self.parameters < 1 or self.count < 1:
            msg = f"Rules need 0 < most <= 1, parameters >= 1 and count >= 1; got {self}."
            raise ValueError(msg)
        if not 0 <= self.least_noise < math.inf or not 0 <= self.most_epsilon < math.inf or not 0 < self.delta < 1:
            msg = f"Rules need a noise and an epsilon >= 0, finite, and a delta between 0 and 1; got {self}."
            raise ValueError(msg)


def check_method(name: str, rules: Rules) -> None:
    """Refuse methods that send more than the site allows."""
    if name in PARAMETERS_ONLY or (name in CLASS_SUMS and Allowance.CLASS_SUMS in rules.allowed):
        return
    if name in CLASS_SUMS:
        msg = f"`{name}` sends sums over classes, and this site sends none; its owner can `--allow class-sums`."
    else:
        msg = f"This site does not know what `{name}` sends, and does not run it."
    raise RefusedError(msg)


def check_reading(selector: Selector) -> None:
    """Refuse to read coresets off place by place: what changes in a site's answers are single samples' gradients."""
    if isinstance(selector, F2cto) and selector.settings.reads_places:
        msg = 'This site does not read coresets off place by place; use the method `f2cto` with `choice = "average"`.'
        raise RefusedError(msg)


def check_job(job: Job, schema: Schema, samples: int, rules: Rules) -> int:
    """How many samples a job lets the site keep, after checking that it is within the rules."""
    check_method(job.method, rules)
    if job.schema != schema.digest:
        msg = f"The job was made for the schema {job.schema[:12]}…, and this site has {schema.digest[:12]}…."
        raise RefusedError(msg)
    # Held against what the owner said and not against the data: by asking on, a master would find their extremes.
    if (job.range.low, job.range.high) != (rules.range.low, rules.range.high):
        msg = (
            f"The job's range is [{job.range.low:g}, {job.range.high:g}], and this site was started with "
            f"[{rules.range.low:g}, {rules.range.high:g}]."
        )
        raise RefusedError(msg)
    for key, value in flat(job.settings).items():
        if (largest := _largest(value)) > rules.count:
            msg = f"The job has `{key}` = {largest}, and this site allows at most {rules.count}."
            raise RefusedError(msg)
    if (size := parameters(job, schema)) > rules.parameters:
        msg = f"The job's network has {size:,} parameters, and this site allows at most {rules.parameters:,}."
        raise RefusedError(msg)
    kept = job.size if job.size >= 1 else job.size * samples
    if kept > max(1, rules.most * samples):
        msg = f"The job keeps {kept:,.0f} of this site's {samples:,} samples, and it allows a share of {rules.most:g}."
        raise RefusedError(msg)
    return coreset_sizes(job.size, [samples])[0]


def check_question(message: Message, job: Job, size: int) -> None:
    """Refuse vectors that no method of this kind asks with; `size` is the length of w."""
    for name, vector in message.vectors.items():
        if vector.ndim != 1 or (job.method in PARAMETERS_ONLY and len(vector) != size):
            msg = f"The vector `{name[:40]}` has shape {tuple(vector.shape)}; the model has {size:,} parameters."
            raise RefusedError(msg)
        if not bool(vector.isfinite().all()):
            msg = f"The vector `{name[:40]}` holds NaN or infinite numbers."
            raise RefusedError(msg)


def check_answer(reply: Message, job: Job, size: int, samples: int) -> None:
    """Refuse to send anything but the messages of the method: nothing has the shape of the site's data."""
    sums = job.method in CLASS_SUMS
    for name, vector in reply.vectors.items():
        if vector.ndim != 1 or (len(vector) != size and (not sums or len(vector) == samples)):
            msg = f"The answer was held back: its vector `{name}` is none of the model's parameters."
            raise RefusedError(msg)
    most = SCORES.get(job.method, SCALARS)
    if len(reply.scalars) > most and not sums:
        msg = f"The answer was held back: it has {len(reply.scalars)} numbers, and at most {most} are sent."
        raise RefusedError(msg)


def _largest(value: Any) -> int:  # noqa: ANN401  (whatever JSON holds)
    if isinstance(value, Mapping):
        return max(map(_largest, value.values()), default=0)
    if isinstance(value, list | tuple):
        return max(map(_largest, value), default=0)
    return abs(value) if isinstance(value, int) else 0
