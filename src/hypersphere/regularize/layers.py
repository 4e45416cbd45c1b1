"""Which layers of a model are regularized, their neurons, and the weighted sum over them."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from math import inf, prod
from numbers import Integral
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import UninitializedParameter
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd
from torch.nn.utils.parametrize import is_parametrized

from hypersphere.regularize.where import Where, choices, plain_names
from hypersphere.sphere.measures import check_number
from hypersphere.sphere.unit import inside_vmap
from hypersphere.util.draws import normals

_KINDS = (nn.Linear, _ConvNd, nn.MultiheadAttention)
_TAKEN = (
    "has a weight that is no matrix of its own: where a hook makes it (torch.nn.utils.weight_norm, spectral_norm, "
    "prune), use torch.nn.utils.parametrizations; where FullyShardedDataParallel holds it, fully_shard; or leave the "
    "layer out by `where`"
)


class WeightRegularizer(nn.Module, ABC):
    """weight · Σ over layers of a measure of the layer's neurons, as a differentiable scalar.

    The neurons of a Linear layer are the rows of its weight, those of a convolution its flattened filters; biases and
    norms are none. A grouped convolution counts as the mean over its groups, nn.MultiheadAttention as that over its
    maps to queries, keys and values (its output is a Linear layer of its own); a depthwise convolution is skipped, as
    are layers of one neuron, or of one weight a neuron, whose directions are but two. `where` chooses layers: names of
    sub-networks ("projector"), patterns ("encoder.layer4.*"), modules, classes of them, several of these, or a function
    of the name and the module. Names are those of the model inside torch.compile or DistributedDataParallel.

    Layers are chosen once, here, among those whose weight is trainable (`requires_grad`) now: a frozen network, such as
    BYOL's target, is left out. The weights are read at each call, so parametrized weights are the effective ones. A
    weight shared by several layers counts once; one that is frozen later still counts, without gradient. Layers may lie
    on several devices: the sum is on that of the first.

    It registers nothing: attached to the model it watches, it adds no parameter and no entry to the state_dict.

    A regularizer of your own is a subclass with a `measure`.
    """

    def __init__(self, model: nn.Module, weight: float = 1.0, where: Where = None) -> None:
        super().__init__()
        if not isinstance(model, nn.Module):
            raise TypeError(f"model must be a torch.nn.Module, not a {type(model).__name__}")
        check_number("weight", weight)
        if isinstance(weight, Tensor) and weight.numel() != 1:
            raise ValueError(f"the regularizer's weight must be one number, not {tuple(weight.shape)}")
        if not 0 <= weight < inf:
            raise ValueError(f"the regularizer's weight must be finite and at least 0, not {weight}")
        self.weight = weight
        self._layers = _choose(model, where)

    @abstractmethod
    def measure(self, matrices: Sequence[Tensor]) -> Tensor:
        """One number for each matrix, whose rows (dimensions after the first being one) are neurons."""

    def per_layer(self) -> dict[str, Tensor]:
        """The measure of each layer, not weighted, by its name in the model; differentiable."""
        return dict(zip([name for name, _ in self._layers], self._of_layers(), strict=True))

    def forward(self) -> Tensor:
        return self.weight * self._of_layers().sum()

    def _of_layers(self) -> Tensor:
        groups = [groups_of(layer) for _, layer in self._layers]
        measured = self._on_each_device([w for group in groups for w in group])
        return means(measured, [len(group) for group in groups])

    def _on_each_device(self, matrices: Sequence[Tensor]) -> Tensor:
        """Matrices that lie together are measured together; all numbers come to the device of the first."""
        first = matrices[0].device
        if all(w.device == first for w in matrices):
            return self._measured(matrices)
        found: dict[int, Tensor] = {}
        for device in {w.device for w in matrices}:
            there = [i for i, w in enumerate(matrices) if w.device == device]
            found |= zip(there, self._measured([matrices[i] for i in there]).to(first), strict=True)
        return torch.stack([found[i] for i in range(len(matrices))])

    def _measured(self, matrices: Sequence[Tensor]) -> Tensor:
        measured = self.measure(matrices)
        if not isinstance(measured, Tensor) or measured.shape != (len(matrices),):
            wanted = f"a tensor, one number for each of {len(matrices)} matrices"
            given = (
                f"of shape {tuple(measured.shape)}" if isinstance(measured, Tensor) else f"a {type(measured).__name__}"
            )
            raise ValueError(f"{type(self).__name__}.measure must give {wanted}, not {given}")
        told = torch.is_grad_enabled() and not inside_vmap()  # where a tensor does not say
        if told and not measured.requires_grad and any(w.requires_grad for w in matrices):
            raise ValueError(f"{type(self).__name__}.measure gives numbers that depend on no weight")
        return measured


def means(values: Tensor, counts: Sequence[int]) -> Tensor:
    """The mean of the first counts[0] values, of the next counts[1], and so on."""
    if len(values) == len(counts):
        return values
    return torch.stack([part.mean() for part in values.split(list(counts))])


def check_count(name: str, value: Any) -> None:
    if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, not {value!r}")


class KeptNormals:
    """D × `columns` standard normal numbers, drawn once for each D and kept.

    They are a function of the seed, so there is no state to save; and they stay where they are in memory, as the replay
    of a CUDA graph needs it.
    """

    def __init__(self, columns: int, seed: int, stream: int) -> None:
        self.columns, self.seed, self.stream = columns, seed, stream
        self._kept: dict[tuple[int, torch.device], Tensor] = {}

    def __call__(self, d: int, like: Tensor) -> Tensor:
        """In the dtype and on the device of a tensor."""
        key = d, like.device
        with torch.inference_mode(False):  # whatever the first call is for, later ones may need gradients
            if key not in self._kept:
                rows = torch.arange(d, device=like.device)
                self._kept[key] = normals(self.columns, rows, seed=self.seed, epoch=d, stream=self.stream)
            self._kept[key] = self._kept[key].to(like)
        return self._kept[key]


def groups_of(layer: nn.Module) -> tuple[Tensor, ...]:
    """The neurons of each group, where possible as they lie in memory: pairs do not mind the order of weights."""
    weights = tuple(_whole(getattr(layer, name)) for name in _names(layer))
    if isinstance(layer, nn.MultiheadAttention):
        return weights if len(weights) == 3 else weights[0].chunk(3)
    groups = layer.groups if isinstance(layer, _ConvNd) else 1
    if isinstance(layer, _ConvTransposeNd):  # stored as in × out/groups × kernel
        return weights[0].unflatten(0, (groups, -1)).transpose(1, 2).unbind()
    return weights if groups == 1 else weights[0].unflatten(0, (groups, -1)).unbind()


def _whole(weight: Tensor) -> Tensor:
    """Of a weight that several processes share out (fully_shard), all of it."""
    return weight.full_tensor() if hasattr(weight, "full_tensor") else weight


def _names(layer: nn.Module) -> tuple[str, ...]:
    """Of its weights."""
    if not isinstance(layer, nn.MultiheadAttention):
        return ("weight",)
    packed = layer.in_proj_weight is not None
    return ("in_proj_weight",) if packed else ("q_proj_weight", "k_proj_weight", "v_proj_weight")


def has_neurons(model: nn.Module) -> bool:
    """Whether there is a layer to regularize."""
    return any(_trainable(module) for _, module in _layers(model))


def layers_of(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """All layers of neurons that can be told apart, frozen or not, by name; tied ones once."""
    return _once(_plainly_named(model)[0])


def _layers(model: nn.Module) -> list[tuple[str, nn.Module]]:
    layers = ((name, module) for name, module in model.named_modules() if isinstance(module, _KINDS))
    return [(name, module) for name, module in layers if _counts(module)]


def _plainly_named(model: nn.Module) -> tuple[list[tuple[str, nn.Module]], dict[str, str]]:
    """By their names inside wrappers; and these with their whole names."""
    layers = _layers(model)
    names = plain_names(model, [name for name, _ in layers])
    return list(zip(names, [module for _, module in layers], strict=True)), names


def _once(layers: Iterable[tuple[str, nn.Module]]) -> list[tuple[str, nn.Module]]:
    """Of tied layers the first."""
    first: dict[tuple[int, ...], tuple[str, nn.Module]] = {}
    for name, module in layers:
        key = tuple(map(id, _stored(module))) or (id(module),)  # what is made of buffers is its own
        first.setdefault(key, (name, module))
    return list(first.values())


def _choose(model: nn.Module, where: Where) -> list[tuple[str, nn.Module]]:
    """The trainable layers that match, tied ones once; every part of `where` has to match one."""
    layers, names = _plainly_named(model)
    wanted: set[nn.Module] = set()
    for told, choice in choices(where, names):
        matching = [(name, module) for name, module in layers if choice(name, module)]
        trainable = {module for _, module in matching if _trainable(module)}
        if matching and not trainable:
            raise ValueError(f"all layers of {told} are frozen that have neurons to tell apart: nothing to regularize")
        if not matching:
            parts = dict.fromkeys(name.split(".")[0] for name, module in layers if name and _trainable(module))
            other = "; of any other matrix of weights there is hs.hyperspherical_energy(w)"
            there = f"; its parts with such layers are: {', '.join(parts)}" if parts else other
            raise ValueError(
                f"the model has no Linear, Conv or MultiheadAttention layer of neurons to tell apart in {told}{there}"
            )
        wanted |= trainable
    chosen = [(name, module) for name, module in layers if module in wanted]
    for name, module in chosen:
        if _is_lazy(module):
            raise ValueError(f"layer {name!r} is lazy, its weight not made yet: run a batch through the model first")
        if not _is_its_own(module):
            raise ValueError(f"layer {name!r} {_TAKEN}")
    return _once(chosen)


def _counts(layer: nn.Linear | _ConvNd | nn.MultiheadAttention) -> bool:
    """Two neurons or more in a group, each of two weights or more: directions that can be told apart."""
    if _is_lazy(layer):
        return True
    if isinstance(layer, _ConvNd):
        neurons = layer.out_channels // layer.groups
        weights = layer.in_channels // layer.groups * prod(layer.kernel_size)
    elif isinstance(layer, nn.MultiheadAttention):
        neurons, weights = layer.embed_dim, min(layer.embed_dim, layer.kdim, layer.vdim)
    else:
        neurons, weights = layer.out_features, layer.in_features
    return neurons > 1 and weights > 1


def _is_lazy(layer: nn.Module) -> bool:
    return any(isinstance(weight, UninitializedParameter) for weight in _stored(layer))


def _stored(module: nn.Module) -> list[Tensor]:
    """The parameters behind its weights, the same for tied layers."""
    found: list[Tensor] = []
    for name in _names(module):
        if is_parametrized(module, name):
            found += module.parametrizations[name].parameters()  # type: ignore[index,union-attr]
        elif module._parameters.get(name) is not None:
            found.append(getattr(module, name))
        else:  # a hook makes it, of weight_g, weight_orig, …
            hooked = [p for key, p in module.named_parameters(recurse=False) if key.startswith(f"{name}_")]
            found += hooked or [getattr(module, name)]
    return found


def _is_its_own(layer: nn.Module) -> bool:
    """Whether its weights are parameters, or made of them at each look."""
    stored = [layer._parameters.get(name) for name in _names(layer) if not is_parametrized(layer, name)]
    return all(weight is not None and weight.ndim > 1 for weight in stored)


def _trainable(layer: nn.Module) -> bool:
    return any(parameter.requires_grad for parameter in _stored(layer))
