"""What a run of `f2cto select` depends on: the same settings and the same data, the same result."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from torch import nn

from f2cto.attacks.base import Range
from f2cto.config import SettingsError, build
from f2cto.data.damage import Damage
from f2cto.data.encoding import Options
from f2cto.data.sources import SOURCES
from f2cto.evaluation import Evaluation
from f2cto.federation.faults import Faults
from f2cto.methods.catalogue import METHODS, check_said, method
from f2cto.methods.f2cto_settings import F2ctoSettings
from f2cto.methods.quotas import Balance
from f2cto.models import mlp
from f2cto.resnet import resnet18
from f2cto.signals import signal_network
from f2cto.training import Training


class Kind(StrEnum):
    """How tasks are made of a data set."""

    WHOLE = "whole"  # one task with everything
    PERMUTED = "permuted"  # the same classes with features in another order
    SPLIT = "split"  # other classes each time
    BY_DOMAIN = "by_domain"  # from elsewhere each time


@dataclass(frozen=True)
class Scenario:
    """The tasks, and the one that `f2cto select` looks at."""

    kind: Kind = Kind.WHOLE
    tasks: int = 0  # 0: as many as the data make; a permuted scenario must say
    classes: int = 2  # in each task of a split scenario
    column: str = ""  # whose values are the domains; empty: the sites
    samples: int = 0  # at most so many training samples a task; 0: all
    validation: float = 0.1  # share of the training samples that settings may be chosen by
    test: float = 0.3  # share set apart where the data come without a test part
    judged: int = 0  # at most so many test or validation samples; 0: all
    task: int = 1  # which of them `f2cto select` takes, counted from 1


@dataclass(frozen=True)
class DataSettings:
    """The samples."""

    source: str = "digits"  # a name of `f2cto data list`, or the path of a file or folder
    label: str = ""  # the column with the classes, for users' files
    site: str = ""  # the column that says whose each sample is
    fixed: tuple[str, ...] = ()  # columns that no attacker can change, besides those the source names
    range: Range = field(default_factory=Range)
    columns: Options = field(default_factory=Options)
    scenario: Scenario = field(default_factory=Scenario)
    balance: Balance = Balance.EVEN  # of the classes in coresets
    damage: Damage = field(default_factory=Damage)  # of the training samples

    def __post_init__(self) -> None:
        """Refuse a source that is neither known nor looks like a path."""
        if self.source not in SOURCES and not Path(self.source).suffix and "/" not in self.source:
            msg = f"There is no data set `{self.source}`; there are {', '.join(SOURCES)}, or give a file or folder."
            raise ValueError(msg)


class Architecture(StrEnum):
    """The networks that can be named in settings; in Python any module will do."""

    MLP = "mlp"
    RESNET18 = "resnet18"
    SIGNALS = "signals"


# What samples must be for a network that does not take all; each has so many dimensions.
NEEDED = {Architecture.RESNET18: ("images", 3), Architecture.SIGNALS: ("channels over time", 2)}


@dataclass(frozen=True)
class Network:
    """The proxy and the judged model."""

    kind: Architecture = Architecture.MLP
    hidden: tuple[int, ...] = (100, 100)  # layers of a perceptron
    width: int = 20  # channels of the first stage of a convolutional network
    stride: int = 1  # of a ResNet's first layer
    device: str = "cpu"

    def __post_init__(self) -> None:
        """Refuse layers without units."""
        if min(self.width, self.stride, *self.hidden) < 1:
            msg = f"Networks need layers of width and stride >= 1; got {self}."
            raise ValueError(msg)

    def built(self, sample: tuple[int, ...], classes: int) -> nn.Module:
        """A new network for samples of a shape, as torch's global generator has it."""
        self.check(len(sample))
        match self.kind:
            case Architecture.MLP:
                return mlp(math.prod(sample), self.hidden, classes)
            case Architecture.RESNET18:
                return resnet18(sample[0], classes, self.width, self.stride)
            case Architecture.SIGNALS:
                return signal_network(sample[0], classes, self.width)

    def check(self, dimensions: int) -> None:
        """Refuse samples that the network does not take, by the number of their dimensions."""
        what, needed = NEEDED.get(self.kind, ("", dimensions))
        if dimensions != needed:
            msg = f'Network `{self.kind}` takes {what}, and these samples are none; use `network.kind = "mlp"`.'
            raise SettingsError(msg)


class ProxyStart(StrEnum):
    """Where the models that methods choose with begin."""

    FRESH = "fresh"  # newly drawn
    LEARNER = "learner"  # as the learner is after the task


@dataclass(frozen=True)
class Rehearsal:
    """What is remembered of former tasks while the next is learned."""

    memory: int = 20  # samples that a worker can keep, over all its tasks
    batch: int = 50  # remembered samples in a step of training, beside those of the task
    weight: float = 1.0  # of their mean loss beside that of the task
    proxy: ProxyStart = ProxyStart.FRESH  # of every method alike

    def __post_init__(self) -> None:
        """Refuse to remember nothing."""
        if self.memory < 1 or self.batch < 1 or not self.weight >= 0:
            msg = f"Rehearsal needs memory >= 1, batch >= 1 and weight >= 0; got {self}."
            raise ValueError(msg)


class Engine(StrEnum):
    """Where the workers of `f2cto select` run."""

    PROCESS = "process"  # all in this one
    RAY = "ray"  # in processes of their own, on this machine or on a cluster


@dataclass(frozen=True)
class Federation:
    """How master and workers come together."""

    engine: Engine = Engine.PROCESS
    address: str = ""  # of a Ray cluster, `auto` or HOST:PORT; empty: one on this machine
    folder: str = ""  # where its workers keep their states, so that one whose process died goes on; empty: nowhere
    together: bool = True  # in this process workers work as one where they can; false: in turn, as elsewhere
    faults: Faults = field(default_factory=Faults)

    def __post_init__(self) -> None:
        """Refuse an address that nobody goes to."""
        if (self.address or self.folder) and self.engine is not Engine.RAY:
            msg = 'Address and folder are those of a Ray cluster; leave them out, or set `federation.engine = "ray"`.'
            raise ValueError(msg)


@dataclass(frozen=True)
class Judging:
    """How models are made of coresets and judged: the same for every method."""

    training: Training = field(default_factory=Training)
    rehearsal: Rehearsal = field(default_factory=Rehearsal)
    evaluation: Evaluation = field(default_factory=Evaluation)


@dataclass(frozen=True)
class RunSettings(Judging):
    """Everything a run depends on."""

    data: DataSettings = field(default_factory=DataSettings)
    workers: int = 5
    partition: str = "iid"  # or dirichlet:0.3, classes:2, site
    size: float = 10.0  # samples each worker keeps: a count, or a fraction below 1
    seed: int = 0
    selection_radius: float = -1.0  # of the attacks that samples are chosen against; below 0: `evaluation.radius`
    network: Network = field(default_factory=Network)
    method: str = "f2cto"
    f2cto: F2ctoSettings = field(default_factory=F2ctoSettings)
    methods: Mapping[str, Any] = field(default_factory=dict)  # settings of the other methods, by name
    federation: Federation = field(default_factory=Federation)

    def __post_init__(self) -> None:
        """Refuse what no run can start with."""
        if self.workers < 1 or self.seed < 0:
            msg = f"A run needs workers >= 1 and seed >= 0; got {self.workers} and {self.seed}."
            raise ValueError(msg)
        if method(self.method).settings is not F2ctoSettings and not self.f2cto.sharing.usual:
            msg = (
                f"Weights, aggregation and privacy of `f2cto.sharing` are for F2CTO and its variants, and "
                f"`{self.method}` would not heed them; leave them out."
            )
            raise ValueError(msg)
        for name, values in self.methods.items():
            if method(name).settings is F2ctoSettings:
                msg = f"`{name}` has the settings of `f2cto`; set `f2cto.…` instead of `methods.{name}.…`."
                raise ValueError(msg)
            build(method(name).settings, values, f"methods.{name}.")

    @property
    def radius(self) -> float:
        """How far attacks move a feature while samples are chosen: of the task, hence the same for every method."""
        return self.selection_radius if self.selection_radius >= 0 else self.evaluation.radius

    def of(self, name: str) -> object:
        """The settings of a method: those of F2CTO serve all its variants."""
        return self.f2cto if METHODS[name].settings is F2ctoSettings else self.methods.get(name, {})

    def check_said(self, name: str, said: Mapping[str, Any]) -> None:
        """Refuse what a user says of these settings if a method would override it."""
        if METHODS[name].settings is F2ctoSettings:
            check_said(name, said.get("f2cto", {}), self.f2cto)
