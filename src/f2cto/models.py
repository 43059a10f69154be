"""A network as functions of one flat parameter vector: the only place that knows that w has layers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise

import torch
from torch import Generator, Tensor, nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from f2cto.hardware import Precision, rough
from f2cto.randomness import derived_seed


@dataclass(frozen=True, eq=False)
class Visit:
    """A layer during one pass."""

    layer: nn.Module
    inputs: Tensor
    slope: Tensor  # the gradient of the samples' losses in what came out of the layer


class FlatModel:
    """A torch module without its parameters: give them as one vector `w` with every call.

    Args:
        module: any network from inputs to logits whose output for a sample depends on that sample only.

    """

    def __init__(self, module: nn.Module) -> None:
        """Take the module as a template; its parameters are copied, never written."""
        for name, part in module.named_modules():
            if getattr(part, "running_mean", None) is not None:
                msg = (
                    f"Layer `{name}` keeps running statistics, so the network is not a function of its parameters; "
                    "use GroupNorm or LayerNorm instead."
                )
                raise ValueError(msg)
        self._module = module.eval()
        named = dict(module.named_parameters())
        if not named:
            msg = "The model has no parameters to train."
            raise ValueError(msg)
        self._shapes = {name: parameter.shape for name, parameter in named.items()}
        self._sizes = [parameter.numel() for parameter in named.values()]

    @property
    def size(self) -> int:
        """d, the length of w."""
        return sum(self._sizes)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The numbers of entries of the tensors in w."""
        return tuple(self._sizes)

    def own(self) -> Tensor:
        """The parameters the module came with, flat."""
        return torch.cat([parameter.detach().reshape(-1) for parameter in self._module.parameters()]).clone()

    def unflatten(self, w: Tensor) -> dict[str, Tensor]:
        """The parameters by name, as views of w."""
        parts = torch.split_with_sizes(w, self._sizes)
        return {name: part.view(shape) for (name, shape), part in zip(self._shapes.items(), parts, strict=True)}

    def logits(self, w: Tensor, x: Tensor) -> Tensor:
        """The network's output.  (M, classes)."""
        logits: Tensor = functional_call(self._module, self.unflatten(w), (x,))
        return logits

    def stacked_logits(self, w: Tensor, x: Tensor) -> Tensor:
        """Every network's output on samples of its own: w (P, d), x (P, M, *features) -> (P, M, classes)."""
        if self._chain is None or _watched(self._module.children()):
            return torch.stack([self.logits(own, samples) for own, samples in zip(w, x, strict=True)])
        parts, value = iter(torch.split_with_sizes(w, self._sizes, dim=1)), x.flatten(2)
        for part in self._chain:
            if isinstance(part, nn.ReLU):
                value = value.relu()
            else:
                weight = next(parts).view(-1, part.out_features, part.in_features)
                value = torch.baddbmm(next(parts).unsqueeze(1), value, weight.transpose(1, 2))
        for hook in self._module._forward_hooks.values():  # noqa: SLF001  (whoever watches the network, watches this)
            seen = hook(self._module, (x,), value)
            value = value if seen is None else seen
        return value

    @cached_property
    def _chain(self) -> list[nn.Linear | nn.ReLU] | None:
        """The layers of a plain perceptron, for which many networks are one product of matrices; else none."""
        if type(self._module) is not nn.Sequential:  # a subclass may do anything with its layers
            return None
        first, *rest = self._module
        plain = type(first) is nn.Flatten and first.start_dim == 1 and first.end_dim == -1
        known = all(type(part) is nn.ReLU or (type(part) is nn.Linear and part.bias is not None) for part in rest)
        own = len({id(p) for part in rest for p in part.parameters()}) == 2 * sum(type(p) is nn.Linear for p in rest)
        return list(rest) if plain and known and own else None  # type: ignore[arg-type]

    def logits_to_attack(self, w: Tensor, x: Tensor, precision: Precision = Precision.AUTO) -> Tensor:
        """The network's output for gradients in x of which only the signs are used.  (M, classes)."""
        if not self.roughly(precision, x.device):
            return self.logits(w, x)
        # Its cache would keep casts of parameters that are new in every call.
        with torch.autocast(x.device.type, torch.bfloat16, cache_enabled=False):
            return self.logits(w, x).to(x.dtype)

    def roughly(self, precision: Precision, device: torch.device) -> bool:
        """Whether attacks are computed in bfloat16."""
        return rough(precision, device, convolves=self.convolves)

    def losses(self, w: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """The cross-entropy of each sample.  (M,)."""
        return cross_entropy(self.logits(w, x), y, reduction="none")

    def evaluate(self, w: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """The cross-entropy of each sample and whether it is classified correctly, from one pass."""
        return _judged(self.logits(w, x), y)

    def evaluate_roughly(self, w: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """The same with bfloat16 inside: for gradients of which little more than the signs is used."""
        return _judged(self.logits_to_attack(w, x, Precision.BFLOAT16), y)

    def visits(self, w: Tensor, x: Tensor, y: Tensor) -> tuple[list[Visit], Tensor]:
        """One pass as seen by each layer that has parameters of its own, and the gradient of the sum of losses in w.

        Layers come in the order in which w holds their parameters; one that is called twice comes twice.
        """
        seen: list[tuple[int, nn.Module, Tensor, Tensor]] = []
        layers = [part for part in self._module.modules() if list(part.parameters(recurse=False))]

        def note(number: int, layer: nn.Module, inputs: tuple[Tensor, ...], out: Tensor) -> Tensor:
            seen.append((number, layer, inputs[0].detach(), out))
            return out.clone()  # what comes next may write into it

        handles = [layer.register_forward_hook(partial(note, i)) for i, layer in enumerate(layers)]
        try:
            with torch.enable_grad():
                leaf = w.detach().requires_grad_()
                losses = self.losses(leaf, x, y)
        finally:
            for handle in handles:
                handle.remove()
        *slopes, slope = torch.autograd.grad(losses.sum(), [*(out for *_, out in seen), leaf])
        found = [(number, Visit(layer, a, d)) for (number, layer, a, _), d in zip(seen, slopes, strict=True)]
        return [visit for _, visit in sorted(found, key=lambda pair: pair[0])], slope

    @cached_property
    def convolves(self) -> bool:
        """Whether the network has convolutions, in which nearly all its time is spent."""
        return any(isinstance(part, nn.modules.conv._ConvNd) for part in self._module.modules())  # noqa: SLF001

    def pass_bytes(self, x: Tensor) -> int:
        """About how much memory one sample's forward pass keeps for the backward pass; `x` is one sample."""
        floats = [x.numel()]
        leaves = [part for part in self._module.modules() if not list(part.children())]
        handles = [part.register_forward_hook(lambda _, __, out: floats.append(out.numel())) for part in leaves]
        try:
            with torch.no_grad():
                self.logits(self.own().to(x.dtype), x)
        finally:
            for handle in handles:
                handle.remove()
        return sum(floats) * x.element_size()

    def features(self, w: Tensor, x: Tensor) -> Tensor:
        """What goes into the last linear layer.  (M, width)."""
        linear = [part for part in self._module.modules() if isinstance(part, nn.Linear)]
        if not linear:
            msg = "The model has no linear layer to take features before."
            raise ValueError(msg)
        seen: list[Tensor] = []
        handle = linear[-1].register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
        try:
            self.logits(w, x)
        finally:
            handle.remove()
        return seen[0]


def _watched(layers: Iterable[nn.Module]) -> bool:
    """Whether somebody is to be called when one of them is."""
    return any(layer._forward_hooks or layer._forward_pre_hooks for layer in layers)  # noqa: SLF001


def _judged(logits: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """The cross-entropy of each sample and whether it is classified correctly."""
    return cross_entropy(logits, y, reduction="none"), logits.detach().argmax(dim=1) == y


def mlp(inputs: int, hidden: Sequence[int], classes: int) -> nn.Module:
    """A multi-layer perceptron with ReLU units on flattened inputs."""
    layers: list[nn.Module] = [nn.Flatten()]
    for wide, narrow in pairwise((inputs, *hidden)):
        layers += [nn.Linear(wide, narrow), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear((inputs, *hidden)[-1], classes))


def fresh(make: Callable[[], nn.Module], rng: Generator) -> nn.Module:
    """A module with torch's default initialisation, drawn from `rng`; the global generator is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derived_seed(int(torch.randint(2**62, (), generator=rng))))
        return make()
