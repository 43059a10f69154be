"""Selection in Python: `select` takes shards and gives back which samples to keep."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from f2cto import hardware
from f2cto.attacks.base import Range
from f2cto.data.dataset import (
    LabelledData,
    Source,
    as_labelled,
    check_alike,
    check_range,
    labels_in,
    numbered,
    output_labels,
)
from f2cto.federation.engine import Traffic
from f2cto.federation.faults import Absence
from f2cto.methods.base import Given, OnRound, Shard
from f2cto.methods.catalogue import make_selector
from f2cto.methods.quotas import Balance
from f2cto.methods.running import Gather, Here, run
from f2cto.models import FlatModel, fresh, mlp
from f2cto.randomness import generator
from f2cto.training import Training
from f2cto.trilevel.master import Round, Stopped

HIDDEN = (100, 100)


@dataclass(frozen=True, eq=False)
class Selection:
    """What to keep, and how it was found."""

    indices: list[NDArray[np.int64]]  # per worker: positions in its shard, best first
    weights: list[NDArray[np.float64]]  # per worker: a weight for each, summing to 1
    history: tuple[Round, ...]
    model: nn.Module  # the proxy model that was trained along the way
    stopped: Stopped
    traffic: Traffic
    classes: tuple[int, ...] | tuple[str, ...] = ()  # the label that each output of the model stands for
    absences: tuple[Absence, ...] = ()  # who was missing when, where the engine may go on without


def select(  # noqa: PLR0913  (each a question only the caller can answer)
    shards: Sequence[Source],
    size: float | Sequence[int],
    *,
    model: nn.Module | None = None,
    settings: object = None,
    seed: int = 0,
    method: str = "f2cto",
    valid: Range | None = None,
    radius: float = 0.1,
    balance: Balance = Balance.EVEN,
    training: Training | None = None,
    device: str = "cpu",
    on_round: OnRound = lambda _: None,
    gather: Gather = Here,
) -> Selection:
    """Pick the samples of each shard that are worth keeping for robust training.

    Args:
        shards: one (x, y) pair of arrays or tensors, or one torch `Dataset`, per worker. Bytes are divided by 255.
            Labels are any whole numbers.
        size: how many samples each worker keeps: a count, a fraction of its shard, or a count for every worker.
        model: the proxy network, from samples to logits; default: a perceptron with two hidden layers. Labels below
            its number of outputs are outputs; others need one output for each, and take them in their order.
        settings: those of the method, such as `F2ctoSettings`, or a mapping of what differs from the defaults.
        seed: the same seed gives the same bits.
        method: one of `f2cto list`.
        valid: the range of the features, [0, 1] unless said otherwise; attacks stay inside.
        radius: how far attacks move a feature, unless the method's settings say another.
        balance: whether each class is to have as many samples, or as many as it has now in proportion.
        training: how models will be trained on what is kept, for methods that choose by that; default: `Training()`.
        device: where to compute, such as `cuda`; the result comes back to the processor.
        on_round: is told about every iteration as it ends.
        gather: where the workers run: in this process, or elsewhere, as `f2cto.cluster.fleet.ray_fleet()` has it.

    Example:
        >>> from f2cto import select
        >>> from sklearn.datasets import load_digits
        >>> x, y = load_digits(return_X_y=True)
        >>> chosen = select([(x[:300] / 16, y[:300])], size=20, settings={"stopping": {"iterations": 2}})
        >>> len(chosen.indices[0])
        20

    """
    valid = valid or Range()
    check_kinds(model, valid, seed)
    there = hardware.device(device)
    data = [part.to(there) for part in checked_shards(shards, valid)]
    network, labels = proxy_network(data[0].x[:1], labels_in(data), model, seed)
    data, network = [numbered(part, labels) for part in data], network.to(there)
    flat = FlatModel(network)
    w = flat.own()
    sizes = coreset_sizes(size, [len(part) for part in data])
    parts = enumerate(zip(data, sizes, strict=True))
    workers = [Shard(part.x, part.y, k, flat, i, seed, balance) for i, (part, k) in parts]
    given = Given(w, valid, radius, balance, training or Training(), flat.sizes, seed)
    selector = make_selector(method, {} if settings is None else settings, given)
    result = run(selector, workers, w, on_round, gather)
    return Selection(
        indices=[c.indices.cpu().numpy() for c in result.coresets],
        weights=[c.weights.double().cpu().numpy() for c in result.coresets],
        history=result.solution.history,
        model=loaded(network, flat, result.solution.w),
        stopped=result.solution.stopped,
        traffic=result.traffic,
        classes=tuple(labels.tolist()),
        absences=tuple(result.absences),
    )


def checked_shards(shards: Sequence[Source], valid: Range) -> list[LabelledData]:
    """Every shard as tensors, or an error that names the shard."""
    if isinstance(shards, tuple) and len(shards) == 2 and hasattr(shards[0], "shape"):
        msg = "`shards` must be a list with one (x, y) pair per worker; for one worker give [(x, y)]."
        raise TypeError(msg)
    if len(shards) == 0:
        msg = "`shards` is empty; give one (x, y) pair or Dataset per worker."
        raise ValueError(msg)
    data = [as_labelled(shard, f"Shard {i}") for i, shard in enumerate(shards)]
    for i, part in enumerate(data):
        check_range(part, valid.low, valid.high, f"Shard {i}")
    check_alike(data)
    return data


def check_kinds(model: object, valid: object, seed: object) -> None:
    """Refuse what is no network, no range or no seed."""
    for name, value, kind, example in (
        ("model", model, nn.Module | None, "a torch network, such as `nn.Linear(4, 2)`"),
        ("valid", valid, Range, "a range, such as `Range(-1, 1)`"),
        ("seed", seed, Integral, "a whole number"),
    ):
        if not isinstance(value, kind):
            msg = f"`{name}` must be {example}; got {value!r}."
            raise TypeError(msg)


def coreset_sizes(size: float | Sequence[int], counts: Sequence[int]) -> list[int]:
    """Each worker's K: `size` itself if it is a count, else that fraction of its samples, at least one."""
    sizes = _own_sizes(size, len(counts)) if isinstance(size, Sequence) else _equal_sizes(size, counts)
    for worker, (k, count) in enumerate(zip(sizes, counts, strict=True)):
        if k > count:
            msg = f"Worker {worker} has {count} samples but is to keep {k}; lower `size` or give it more data."
            raise ValueError(msg)
    return sizes


def _own_sizes(sizes: Sequence[int], workers: int) -> list[int]:
    if len(sizes) != workers or not all(isinstance(k, Integral) and k >= 1 for k in sizes):
        msg = f"`size` must be one count >= 1 for each of the {workers} workers; got {list(sizes)}."
        raise ValueError(msg)
    return [int(k) for k in sizes]


def _equal_sizes(size: float, counts: Sequence[int]) -> list[int]:
    if isinstance(size, bool) or not (size > 0 and math.isfinite(size)) or (size > 1 and size != round(size)):
        msg = f"`size` must be a count (10) or a fraction below 1 (0.05) of each worker's samples; got {size}."
        raise ValueError(msg)
    return [round(size) if size >= 1 else max(1, round(size * count)) for count in counts]


def proxy_network(sample: Tensor, found: Tensor, model: nn.Module | None, seed: int) -> tuple[nn.Module, Tensor]:
    """A copy of the user's network, checked against the data, or a fresh perceptron; and the labels of its outputs."""
    if model is None:
        return fresh(lambda: mlp(sample.numel(), HIDDEN, len(found)), generator(seed, 1)), found.cpu()
    network = copy.deepcopy(model).float().to(sample.device).requires_grad_(requires_grad=True)
    try:
        with torch.no_grad():
            outputs = FlatModel(network).logits(FlatModel(network).own(), sample)
    except RuntimeError as error:
        msg = f"The model cannot take samples of shape {tuple(sample.shape[1:])}: {error}"
        raise ValueError(msg) from error
    if outputs.ndim != 2:
        msg = f"The model must give one row of logits per sample; got shape {tuple(outputs.shape)} for one sample."
        raise ValueError(msg)
    return network, output_labels(found, outputs.shape[1])


def loaded(network: nn.Module, flat: FlatModel, w: Tensor) -> nn.Module:
    """A copy of the network with the parameters `w`."""
    network = copy.deepcopy(network).cpu()
    network.load_state_dict(flat.unflatten(w.detach().cpu().clone()), strict=False)
    return network
