"""Regularizers of a model's weights: which layers they choose, and the weighted sum over them."""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from numbers import Integral
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from hypersphere.regularize.neurons import (
    Layer,
    Matrix,
    base_of,
    is_adapter,
    is_layer,
    is_lazy,
    is_matrix_parameter,
    is_trainable,
    matrix_of,
    splitter,
    stored,
    too_small,
)
from hypersphere.regularize.selection import Where, choices, parts_of, plain_names, unknown_names
from hypersphere.sphere.measures import check_number
from hypersphere.sphere.unit import inside_vmap
from hypersphere.util.random_numbers import normals

Weight = float | Tensor | Callable[[float], float]
Also = Mapping[str, str | tuple[str, int]]
_NOT_A_MATRIX = (
    "has a weight that is not a matrix parameter: replace hooks (torch.nn.utils.weight_norm, spectral_norm, prune) by "
    "torch.nn.utils.parametrizations and FullyShardedDataParallel by fully_shard, or leave the layer out with `where`"
)
_NAMED = 4  # layers that repr names


class WeightRegularizer(nn.Module, ABC):
    """Base class: weight · Σ over layers of a measure of the layer's neurons. Subclasses define `measure`.

    Which layers count:

    - Neurons are the rows of a Linear weight and the flattened filters of a convolution. Biases and norms are ignored.
    - A grouped convolution is the mean over its groups. nn.MultiheadAttention, and a layer named qkv, c_attn or the
      like, is the mean over its maps to queries, keys and values.
    - Under adapters of PEFT (LoRA, DoRA, OFT, BOFT) the weight that acts counts, base + adapter, by the layer's own
      name. The factors of an adapter count only if `where` names them.
    - Depthwise convolutions, and layers with one neuron or with one weight per neuron, are skipped. So is a head whose
      weight is tied to an embedding, unless `where` names it. Embeddings and recurrent layers count only in `also`.
    - Layers are chosen once, when the regularizer is made, among those whose weight is trainable (`requires_grad`).
      A frozen network such as BYOL's target is left out.
    - A weight shared by several layers counts once.

    `layers` and `skipped` say what was chosen, and what was not and why. Weights are read at each call, so parametrized
    weights are the effective ones. The regularizer adds no parameters and no entries to the state_dict, even as a
    submodule of the model.

    Args:
        model: The model to regularize. Names are those inside torch.compile or DistributedDataParallel.
        weight: Factor of the sum, at least 0; or a function of `progress`, an attribute from 0 to 1 that you set. If it
            is 0, nothing is computed.
        where: Layers to regularize: names of sub-networks ("projector"), patterns ("encoder.layer4.*"), modules,
            classes of modules, several of these, or a function of (name, module). Default: all trainable layers with
            neurons.
        exclude: Layers to leave out, in the same ways.
        also: Other parameters, by name, whose "rows" or "columns" are neurons: {"embed.weight": "rows"}. With a number,
            {"attention.q.weight": ("rows", 12)}, it is the mean over so many equal parts, such as heads.
        every: Compute it only in every n-th call, n times as strong, and return 0 in the others.

    Returns:
        Calling it returns a scalar tensor, differentiable by the weights, on the device of the first layer.

    Raises:
        TypeError: If `model` is not a module, or an option has the wrong type.
        ValueError: If no trainable layer matches `where`, if a layer is lazy or its weight is made by a hook, or if
            `weight` is negative.
        RuntimeError: When called, if a layer of the model has been replaced since.

    Example:
        >>> class NeuronLength(hs.regularize.WeightRegularizer):
        ...     def measure(self, matrices):
        ...         return torch.stack([w.flatten(1).norm(dim=1).mean() for w in matrices])
        >>> regularizer = NeuronLength(torch.nn.Linear(4, 3), weight=0.1)
        >>> regularizer().requires_grad
        True
    """

    progress = 0.0

    def __init__(
        self,
        model: nn.Module,
        weight: Weight = 1.0,
        where: Where = None,
        exclude: Where = None,
        also: Also | None = None,
        every: int = 1,
    ) -> None:
        super().__init__()
        if not isinstance(model, nn.Module):
            raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}")
        check_count("every", every)
        self.weight, self.every, self._calls = weight, every, 0
        _check_weight(self._factor())
        self._layers, self.skipped = _choose(model, where, exclude, also or {})
        self._places = _places(model, self._layers)
        if where is None:
            _warn_of_small_share(type(self).__name__, model, self._layers)

    @property
    def layers(self) -> dict[str, list[tuple[int, ...]]]:
        """Names of the regularized layers, each with the shapes of its matrices of neurons.

        Example:
            >>> hs.EnergyRegularizer(torch.nn.Sequential(torch.nn.Linear(8, 4))).layers
            {'0': [(4, 8)]}
        """
        with torch.no_grad():
            return {layer.name: [tuple(w.shape) for w in layer.matrices()] for layer in self._layers}

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
        return dict(zip([layer.name for layer in self._layers], self._of_layers(), strict=True))

    def forward(self) -> Tensor:
        """The weighted sum over layers, a scalar tensor."""
        factor = self._factor()
        if self.every > 1:  # otherwise nothing is counted: torch.compile would compile anew for each number
            factor = factor * self.every if self._calls % self.every == 0 else 0.0
            self._calls += 1
        if not isinstance(factor, Tensor) and factor == 0:
            return torch.zeros((), device=self._layers[0].parameters[0].device, requires_grad=True)
        return factor * self._terms().sum()

    def _terms(self) -> Tensor:
        """What is added up: one number for each layer."""
        return self._of_layers()

    def _factor(self) -> float | Tensor:
        weight = self.weight
        if callable(weight) and not isinstance(weight, Tensor):
            weight = weight(self.progress)
            _check_weight(weight)
        return weight

    def _of_layers(self) -> Tensor:
        self._check_places()
        groups = [layer.matrices() for layer in self._layers]
        measured = self._on_each_device([w for group in groups for w in group])
        return means(measured, [len(group) for group in groups])

    def _check_places(self) -> None:
        """Notice layers that were replaced, by adapters or quantized ones: theirs are not the weights that act."""
        if not torch.compiler.is_compiling():
            for layer, (parent, attribute) in zip(self._layers, self._places, strict=True):
                present = getattr(parent, attribute, None)
                if parent is not None and getattr(present, "_orig_mod", present) is not layer.module:  # torch.compile
                    advice = "make the regularizer after changing the model"
                    raise RuntimeError(f"layer {layer.name!r} has been replaced: {advice}")

    def _chosen_in_words(self) -> str:
        names = [layer.name or "the model" for layer in self._layers]
        shown = ", ".join(names[:_NAMED]) + ", …" * (len(names) > _NAMED)
        return f"{len(names)} layer{'s' * (len(names) != 1)} ({shown})"

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


def _check_weight(weight: Any) -> None:
    check_number("weight", weight)
    if isinstance(weight, Tensor) and weight.numel() != 1:
        raise ValueError(f"the regularizer's weight must be one number, got a tensor of shape {tuple(weight.shape)}")
    if not 0 <= weight < inf:
        raise ValueError(f"the regularizer's weight must be finite and at least 0, got {weight}")


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
    return any(is_trainable(layer.module) for layer in _found(model).layers)


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
    return [(layer.name, layer.module) for layer in neuron_layers(model)]


def neuron_layers(model: nn.Module) -> list[Layer]:
    """All layers of a model with neurons, trainable or not, each with its matrices; tied ones once."""
    return _without_tied(layer for layer in _found(model).layers if not layer.inner)


class _Found(NamedTuple):
    layers: list[Layer]  # by their names inside wrappers
    names: dict[str, str]  # the full name of each
    skipped: dict[str, str]  # reasons by name


def _found(model: nn.Module) -> _Found:
    """All layers with neurons, and the other modules with matrices of weights."""
    modules = dict(model.named_modules())
    adapters = [name for name, module in modules.items() if is_adapter(module) and is_layer(module)]
    inside = tuple(f"{name}." if name else "" for name in adapters)
    layers, skipped = [], {}
    for name, module in modules.items():
        if is_layer(module):
            if reason := too_small(module):
                skipped[name] = reason
            else:
                parent = modules.get(name.rpartition(".")[0]) if name else None
                inner = name not in adapters and name.startswith(inside)
                layers.append(Layer(name, module, splitter(name, module, parent), inner))
        elif any(p.ndim > 1 for p in module.parameters(recurse=False)) and not name.startswith(inside):
            skipped[name] = f"{type(module).__name__}: name its parameter in `also`"
    names = plain_names(model, [layer.name for layer in layers])
    plain = [layer._replace(name=name) for name, layer in zip(names, layers, strict=True)]
    return _Found(plain, names, skipped)


def _without_tied(layers: Iterable[Layer]) -> list[Layer]:
    """The layers without those that share the weights of an earlier one."""
    first: dict[tuple[int, ...], Layer] = {}
    for layer in layers:
        key = tuple(map(id, stored(layer.module))) or (id(layer.module),)  # a weight made of buffers is not shared
        first.setdefault(key, layer)
    return list(first.values())


def _choose(model: nn.Module, where: Where, exclude: Where, also: Also) -> tuple[list[Layer | Matrix], dict[str, str]]:
    """The trainable layers that match `where` and not `exclude`, and why others do not count."""
    found = _found(model)
    skipped, wanted = dict(found.skipped), set[nn.Module]()
    for description, choice in choices(where, found.names):
        matching = _matching(found.layers, choice)
        trainable = {layer.module for layer in matching if is_trainable(layer.module)}
        if not trainable and where is None and also:
            continue
        if matching and not trainable:
            raise ValueError(f"all layers in {description} are frozen: there is nothing to regularize")
        if not matching:
            raise _nothing_matches(found, description)
        wanted |= trainable
    skipped |= {layer.name: "frozen" for layer in found.layers if not is_trainable(layer.module) and not layer.inner}
    if where is None:
        tied = _tied_to_embeddings(model, found.layers)
        if wanted - tied:
            wanted -= tied
            skipped |= {layer.name: "tied to an embedding" for layer in found.layers if layer.module in tied}
    excluded = exclude if exclude is None or callable(exclude) else parts_of(exclude)
    for name in unknown_names(excluded, model) if isinstance(excluded, list) else ():
        raise ValueError(f"exclude={name!r} matches no part of the model; {_parts_in_words(found)}")
    for _, choice in choices(excluded, found.names) if excluded is not None else ():
        left_out = {layer.module for layer in found.layers if choice(layer.name, layer.module)}
        skipped |= {layer.name: "excluded" for layer in found.layers if layer.module in left_out & wanted}
        wanted -= left_out
    chosen = [layer for layer in found.layers if layer.module in wanted]
    for layer in chosen:
        if is_lazy(layer.module):
            raise ValueError(f"layer {layer.name!r} is lazy, without a weight yet: run a batch through the model first")
        if not is_matrix_parameter(layer.module):
            raise ValueError(f"layer {layer.name!r} {_NOT_A_MATRIX}")
    further = [matrix_of(model, name, how) for name, how in also.items()]
    if not chosen and not further:
        raise ValueError("`exclude` leaves no layer to regularize")
    return [*_without_tied(chosen), *further], skipped


def _matching(layers: Sequence[Layer], choice: Callable[[str, nn.Module], bool]) -> list[Layer]:
    """The layers that match. Parts of an adapter match only if the layer that they belong to does not."""
    matching = [layer for layer in layers if not layer.inner and _matches(layer, choice)]
    taken = tuple(f"{layer.name}." for layer in matching)
    inner = [layer for layer in layers if layer.inner and not (taken and layer.name.startswith(taken))]
    return matching + [layer for layer in inner if choice(layer.name, layer.module)]


def _matches(layer: Layer, choice: Callable[[str, nn.Module], bool]) -> bool:
    return choice(layer.name, layer.module) or (is_adapter(layer.module) and choice(layer.name, base_of(layer.module)))


def _nothing_matches(found: _Found, description: str) -> ValueError:
    kinds = "Linear, Conv or MultiheadAttention layer with several neurons"
    return ValueError(f"the model has no {kinds} in {description}; {_parts_in_words(found)}")


def _parts_in_words(found: _Found) -> str:
    parts = dict.fromkeys(
        layer.name.split(".")[0] for layer in found.layers if layer.name and is_trainable(layer.module)
    )
    other = "for another matrix of weights use `also`, or hs.hyperspherical_energy(w)"
    return f"its parts with such layers are: {', '.join(parts)}" if parts else other


def _tied_to_embeddings(model: nn.Module, layers: Sequence[Layer]) -> set[nn.Module]:
    embeddings = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    return {layer.module for layer in layers if embeddings & {id(weight) for weight in stored(layer.module)}}


def _places(model: nn.Module, layers: Sequence[Layer | Matrix]) -> list[tuple[nn.Module | None, str]]:
    """Where each layer is in the model: its parent and its name there."""
    parents = {
        child: (module, name)
        for module in model.modules()
        for name, child in module._modules.items()
        if child is not None
    }
    return [parents.get(layer.module, (None, "")) for layer in layers]


def _warn_of_small_share(kind: str, model: nn.Module, layers: Sequence[Layer | Matrix]) -> None:
    """Warn if most of the trainable matrices are not regularized: they are of kinds that the user may not know of."""
    small = {id(p) for m in model.modules() if is_layer(m) and too_small(m) for p in stored(m)}
    matrices = {id(p): p.numel() for p in model.parameters() if p.requires_grad and p.ndim > 1 and id(p) not in small}
    covered = {id(p) for layer in layers for p in layer.parameters} & matrices.keys()
    share = sum(matrices[key] for key in covered) / max(1, sum(matrices.values()))
    if share < 0.5:
        reason = "`skipped` says why others do not count, and `where=` or `also=` chooses layers"
        warnings.warn(f"{kind} covers {share:.0%} of the trainable weights in matrices: {reason}", stacklevel=4)
