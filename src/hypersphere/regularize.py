"""Which weights get a hyperspherical energy, and their sum (eq:mhe_reg)."""

from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatchcase
from math import isfinite

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd
from torch.nn.utils.parametrize import is_parametrized

from hypersphere.sphere.measures import Metric, check_energy, hyperspherical_energy

Where = str | Iterable[str] | Callable[[str, nn.Module], bool] | None


class EnergyRegularizer(nn.Module):
    """weight · Σ over layers of the mean pair energy of the layer's neurons, as a differentiable scalar.

        regularizer = hs.EnergyRegularizer(model, s=2, metric="geodesic", weight=10.0)
        loss = criterion(model(x), y) + regularizer()

    The neurons of a Linear layer are the rows of its weight, those of a convolution its flattened filters; biases and
    norms are none. A grouped convolution counts pairs within its groups; a depthwise one has no pairs and is skipped.
    `where` chooses layers: names of sub-networks ("projector"), patterns ("encoder.layer4.*"), or a function of the
    name and the module. The choice is made once; the weights are read at each call, so parametrized weights are the
    effective ones. A weight shared by several layers counts once, a frozen one counts without gradient.

    It registers nothing: attached to the model it watches, it adds no parameter and no entry to the state_dict.
    """

    def __init__(
        self,
        model: nn.Module,
        s: float = 2.0,
        metric: Metric = "euclidean",
        weight: float = 1.0,
        half_space: bool = False,
        where: Where = None,
    ) -> None:
        super().__init__()
        check_energy(s, metric)
        if not (weight >= 0 and isfinite(weight)):
            raise ValueError(f"the energy's weight must be finite and at least 0, not {weight}")
        self.s, self.metric, self.weight, self.half_space = s, metric, weight, half_space
        self._layers = list(_choose(model, where))
        if not self._layers:
            raise ValueError(f"no Linear or Conv layer with two neurons or more matches where={where!r}")

    def per_layer(self) -> dict[str, Tensor]:
        """The mean pair energy of each layer, by its name in the model; differentiable."""
        return {name: self._energy(layer) for name, layer in self._layers}

    def forward(self) -> Tensor:
        return self.weight * torch.stack(list(self.per_layer().values())).sum()

    def _energy(self, layer: nn.Module) -> Tensor:
        groups = neurons(layer)
        energies = [hyperspherical_energy(w, self.s, self.metric, self.half_space) for w in groups]
        return torch.stack(energies).mean()

    def extra_repr(self) -> str:
        return f"{len(self._layers)} layers, s={self.s}, metric={self.metric}, weight={self.weight}"


def neurons(layer: nn.Module) -> Tensor:
    """Groups × neurons × weights of a Linear or Conv layer."""
    weight: Tensor = layer.weight  # type: ignore[assignment]
    if not isinstance(layer, _ConvNd):
        return weight[None]
    if isinstance(layer, _ConvTransposeNd):  # stored as in × out/groups × kernel
        return weight.unflatten(0, (layer.groups, -1)).transpose(1, 2).flatten(2)
    return weight.unflatten(0, (layer.groups, -1)).flatten(2)


def _choose(model: nn.Module, where: Where) -> Iterator[tuple[str, nn.Module]]:
    wanted = _predicate(model, where)
    seen = set()
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear | _ConvNd) and wanted(name, module) and _neurons_per_group(module) > 1:
            key = _identity(module)
            if key not in seen:
                seen.add(key)
                yield name, module


def _neurons_per_group(layer: nn.Linear | _ConvNd) -> int:
    return layer.out_channels // layer.groups if isinstance(layer, _ConvNd) else layer.out_features


def _identity(module: nn.Module) -> tuple[int, ...]:
    """The stored parameters behind `module.weight`: the same for tied layers."""
    if is_parametrized(module, "weight"):
        return tuple(id(p) for p in module.parametrizations["weight"].parameters())  # type: ignore[index,union-attr]
    return (id(module.weight),)


def _predicate(model: nn.Module, where: Where) -> Callable[[str, nn.Module], bool]:
    if where is None:
        return lambda name, module: True
    if callable(where):
        return where
    patterns = [where] if isinstance(where, str) else list(where)
    names = [name for name, _ in model.named_modules()]
    for pattern in patterns:
        if not any(_matches(name, pattern) for name in names):
            near = ", ".join(name for name, _ in model.named_children())
            raise ValueError(f"nothing in the model is named {pattern!r}; its parts are: {near}")
    return lambda name, module: any(_matches(name, pattern) for pattern in patterns)


def _matches(name: str, pattern: str) -> bool:
    return name == pattern or name.startswith(pattern + ".") or fnmatchcase(name, pattern)
