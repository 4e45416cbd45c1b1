"""The layers of a model that are regularized, their neurons, and the weighted sum over them."""

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

from hypersphere.regularize.selection import Where, choices, plain_names
from hypersphere.sphere.measures import check_number
from hypersphere.sphere.unit import inside_vmap
from hypersphere.util.random_numbers import normals

_KINDS = (nn.Linear, _ConvNd, nn.MultiheadAttention)
_NOT_A_MATRIX = (
    "has a weight that is not a matrix parameter: replace hooks (torch.nn.utils.weight_norm, spectral_norm, prune) by "
    "torch.nn.utils.parametrizations and FullyShardedDataParallel by fully_shard, or leave the layer out with `where`"
)


class WeightRegularizer(nn.Module, ABC):
    """Base class: weight · Σ over layers of a measure of the layer's neurons. Subclasses define `measure`.

    Which layers count:

    - Neurons are the rows of a Linear weight and the flattened filters of a convolution. Biases and norms are ignored.
    - A grouped convolution is the mean over its groups. nn.MultiheadAttention is the mean over its maps to queries,
      keys and values; its output is a Linear layer of its own.
    - Depthwise convolutions, and layers with one neuron or with one weight per neuron, are skipped.
    - Layers are chosen once, when the regularizer is made, among those whose weight is trainable (`requires_grad`).
      A frozen network such as BYOL's target is left out.
    - A weight shared by several layers counts once.

    Weights are read at each call, so parametrized weights are the effective ones. The regularizer adds no parameters
    and no entries to the state_dict, even as a submodule of the model.

    Args:
        model: The model to regularize. Names are those inside torch.compile or DistributedDataParallel.
        weight: Factor of the sum, at least 0.
        where: Layers to regularize: names of sub-networks ("projector"), patterns ("encoder.layer4.*"), modules,
            classes of modules, several of these, or a function of (name, module). Default: all trainable layers with
            neurons.

    Returns:
        Calling it returns a scalar tensor, differentiable by the weights, on the device of the first layer.

    Raises:
        TypeError: If `model` is not a module, or an option has the wrong type.
        ValueError: If no trainable layer matches `where`, if a layer is lazy or its weight is made by a hook, or if
            `weight` is negative.

    Example:
        >>> class NeuronLength(hs.regularize.WeightRegularizer):
        ...     def measure(self, matrices):
        ...         return torch.stack([w.flatten(1).norm(dim=1).mean() for w in matrices])
        >>> regularizer = NeuronLength(torch.nn.Linear(4, 3), weight=0.1)
        >>> regularizer().requires_grad
        True
    """

    def __init__(self, model: nn.Module, weight: float = 1.0, where: Where = None) -> None:
        super().__init__()
        if not isinstance(model, nn.Module):
            raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}")
        check_number("weight", weight)
        if isinstance(weight, Tensor) and weight.numel() != 1:
            raise ValueError(
                f"the regularizer's weight must be one number, got a tensor of shape {tuple(weight.shape)}"
            )
        if not 0 <= weight < inf:
            raise ValueError(f"the regularizer's weight must be finite and at least 0, got {weight}")
        self.weight = weight
        self._layers = _choose(model, where)

    @abstractmethod
    def measure(self, matrices: Sequence[Tensor]) -> Tensor:
        """Measure each matrix of neurons.

        Args:
            matrices: One tensor per layer or group, of shape (neurons, ...), all on one device.

        Returns:
            A tensor of shape (len(matrices),), differentiable with respect to the matrices.
        """

    def per_layer(self) -> dict[str, Tensor]:
        """The measure of each layer by its name in the model: unweighted, differentiable scalars."""
        return dict(zip([name for name, _ in self._layers], self._of_layers(), strict=True))

    def forward(self) -> Tensor:
        """The weighted sum over layers, a scalar tensor."""
        return self.weight * self._of_layers().sum()

    def _of_layers(self) -> Tensor:
        groups = [groups_of(layer) for _, layer in self._layers]
        measured = self._on_each_device([w for group in groups for w in group])
        return means(measured, [len(group) for group in groups])

    def _on_each_device(self, matrices: Sequence[Tensor]) -> Tensor:
        """Measure the matrices of each device together, and collect the results on the device of the first."""
        first = matrices[0].device
        if all(w.device == first for w in matrices):
            return self._checked_measure(matrices)
        found: dict[int, Tensor] = {}
        for device in {w.device for w in matrices}:
            places = [i for i, w in enumerate(matrices) if w.device == device]
            found |= zip(places, self._checked_measure([matrices[i] for i in places]).to(first), strict=True)
        return torch.stack([found[i] for i in range(len(matrices))])

    def _checked_measure(self, matrices: Sequence[Tensor]) -> Tensor:
        measured = self.measure(matrices)
        if not isinstance(measured, Tensor) or measured.shape != (len(matrices),):
            wanted = f"a tensor with one number for each of {len(matrices)} matrices"
            found = f"shape {tuple(measured.shape)}" if isinstance(measured, Tensor) else type(measured).__name__
            raise ValueError(f"{type(self).__name__}.measure must return {wanted}, got {found}")
        differentiable = torch.is_grad_enabled() and not inside_vmap()  # where tensors do not tell
        if differentiable and not measured.requires_grad and any(w.requires_grad for w in matrices):
            raise ValueError(f"{type(self).__name__}.measure returned numbers that do not depend on the weights")
        return measured


def means(values: Tensor, counts: Sequence[int]) -> Tensor:
    """Means of consecutive groups of values: the first counts[0], the next counts[1], and so on."""
    if len(values) == len(counts):
        return values
    return torch.stack([part.mean() for part in values.split(list(counts))])


def check_count(name: str, value: Any) -> None:
    if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")


class FixedNormals:
    """Standard normal numbers, D × `columns`, drawn once for each D and kept.

    They are a function of the seed, so there is no state to save. They keep their address, as CUDA graphs require.
    """

    def __init__(self, columns: int, seed: int, stream: int) -> None:
        self.columns, self.seed, self.stream = columns, seed, stream
        self._kept: dict[tuple[int, torch.device], Tensor] = {}

    def __call__(self, d: int, like: Tensor) -> Tensor:
        """The numbers for D = `d`, with the dtype and device of `like`."""
        key = d, like.device
        with torch.inference_mode(False):  # the first call may be without gradients, later ones with
            if key not in self._kept:
                rows = torch.arange(d, device=like.device)
                self._kept[key] = normals(self.columns, rows, seed=self.seed, epoch=d, stream=self.stream)
            self._kept[key] = self._kept[key].to(like)
        return self._kept[key]


def groups_of(layer: nn.Module) -> tuple[Tensor, ...]:
    """The neurons of a layer, as one matrix per group.

    Args:
        layer: A Linear layer, a convolution (transposed too) or nn.MultiheadAttention.

    Returns:
        Tensors of shape (neurons, ...), views of the weight if possible: one for each group of a convolution, and three
        for the queries, keys and values of attention. A sharded weight (`fully_shard`) is gathered.

    Example:
        >>> [tuple(w.shape) for w in hs.regularize.groups_of(torch.nn.Conv2d(4, 6, 3, groups=2))]
        [(3, 2, 3, 3), (3, 2, 3, 3)]
    """
    weights = tuple(_whole(getattr(layer, name)) for name in _names(layer))
    if isinstance(layer, nn.MultiheadAttention):
        return weights if len(weights) == 3 else weights[0].chunk(3)
    groups = layer.groups if isinstance(layer, _ConvNd) else 1
    if isinstance(layer, _ConvTransposeNd):  # stored as in × out/groups × kernel
        return weights[0].unflatten(0, (groups, -1)).transpose(1, 2).unbind()
    return weights if groups == 1 else weights[0].unflatten(0, (groups, -1)).unbind()


def _whole(weight: Tensor) -> Tensor:
    """The full weight, if processes share it (fully_shard)."""
    return weight.full_tensor() if hasattr(weight, "full_tensor") else weight


def _names(layer: nn.Module) -> tuple[str, ...]:
    """Attribute names of a layer's weights."""
    if not isinstance(layer, nn.MultiheadAttention):
        return ("weight",)
    packed = layer.in_proj_weight is not None
    return ("in_proj_weight",) if packed else ("q_proj_weight", "k_proj_weight", "v_proj_weight")


def has_neurons(model: nn.Module) -> bool:
    """Whether a model has a trainable layer to regularize.

    Args:
        model: Any model.

    Returns:
        Whether `hs.EnergyRegularizer(model)` would find a layer.

    Example:
        >>> hs.regularize.has_neurons(torch.nn.Linear(4, 3)), hs.regularize.has_neurons(torch.nn.ReLU())
        (True, False)
    """
    return any(_trainable(module) for _, module in _layers(model))


def layers_of(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """All layers of a model with at least two neurons of two weights, trainable or not.

    Args:
        model: Any model; names are those inside torch.compile or DistributedDataParallel.

    Returns:
        Names and layers. Layers that share a weight are listed once.

    Example:
        >>> model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
        >>> hs.regularize.layers_of(model)
        [('0', Linear(in_features=8, out_features=4, bias=True))]
    """
    return _without_tied(_named_layers(model)[0])


def _layers(model: nn.Module) -> list[tuple[str, nn.Module]]:
    layers = ((name, module) for name, module in model.named_modules() if isinstance(module, _KINDS))
    return [(name, module) for name, module in layers if _has_directions(module)]


def _named_layers(model: nn.Module) -> tuple[list[tuple[str, nn.Module]], dict[str, str]]:
    """Layers by their names inside wrappers, and the full name of each."""
    layers = _layers(model)
    names = plain_names(model, [name for name, _ in layers])
    return list(zip(names, [module for _, module in layers], strict=True)), names


def _without_tied(layers: Iterable[tuple[str, nn.Module]]) -> list[tuple[str, nn.Module]]:
    """The layers without those that share the weights of an earlier one."""
    first: dict[tuple[int, ...], tuple[str, nn.Module]] = {}
    for name, module in layers:
        key = tuple(map(id, _stored(module))) or (id(module),)  # a weight made of buffers is not shared
        first.setdefault(key, (name, module))
    return list(first.values())


def _choose(model: nn.Module, where: Where) -> list[tuple[str, nn.Module]]:
    """The trainable layers that match `where`, each of whose parts must match one."""
    layers, names = _named_layers(model)
    wanted: set[nn.Module] = set()
    for description, choice in choices(where, names):
        matching = [(name, module) for name, module in layers if choice(name, module)]
        trainable = {module for _, module in matching if _trainable(module)}
        if matching and not trainable:
            raise ValueError(f"all layers in {description} are frozen: there is nothing to regularize")
        if not matching:
            parts = dict.fromkeys(name.split(".")[0] for name, module in layers if name and _trainable(module))
            other = "for another matrix of weights use hs.hyperspherical_energy(w)"
            hint = f"its parts with such layers are: {', '.join(parts)}" if parts else other
            raise ValueError(
                f"the model has no Linear, Conv or MultiheadAttention layer with several neurons in {description}; "
                f"{hint}"
            )
        wanted |= trainable
    chosen = [(name, module) for name, module in layers if module in wanted]
    for name, module in chosen:
        if _is_lazy(module):
            raise ValueError(f"layer {name!r} is lazy, without a weight yet: run a batch through the model first")
        if not _is_matrix_parameter(module):
            raise ValueError(f"layer {name!r} {_NOT_A_MATRIX}")
    return _without_tied(chosen)


def _has_directions(layer: nn.Linear | _ConvNd | nn.MultiheadAttention) -> bool:
    """Whether each group has at least two neurons of at least two weights."""
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
    """The parameters behind a layer's weights."""
    found: list[Tensor] = []
    for name in _names(module):
        if is_parametrized(module, name):
            found += module.parametrizations[name].parameters()  # type: ignore[index,union-attr]
        elif module._parameters.get(name) is not None:
            found.append(getattr(module, name))
        else:  # made by a hook from weight_g, weight_orig, …
            hooked = [p for key, p in module.named_parameters(recurse=False) if key.startswith(f"{name}_")]
            found += hooked or [getattr(module, name)]
    return found


def _is_matrix_parameter(layer: nn.Module) -> bool:
    """Whether its weights are matrix parameters or parametrized, not made by a hook."""
    stored = [layer._parameters.get(name) for name in _names(layer) if not is_parametrized(layer, name)]
    return all(weight is not None and weight.ndim > 1 for weight in stored)


def _trainable(layer: nn.Module) -> bool:
    return any(parameter.requires_grad for parameter in _stored(layer))
