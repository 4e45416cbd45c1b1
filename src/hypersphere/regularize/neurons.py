"""Layers with neurons, and the matrices of their neurons: the weights that act, also under adapters (PEFT)."""

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import UninitializedParameter
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd
from torch.nn.utils.parametrize import is_parametrized

from hypersphere.sphere.unit import without_autocast

_KINDS = (nn.Linear, _ConvNd, nn.MultiheadAttention)
# names of one layer that computes queries, keys and values; the weights of GPT-NeoX and BLOOM are sorted by head
_FUSED = {"qkv", "Wqkv", "c_attn", "in_proj", "qkv_proj", "to_qkv", "attn_qkv", "query_key_value"}
_BY_HEAD = {"query_key_value"}
_HEADS = ("num_heads", "num_attention_heads", "n_head")


class Layer(NamedTuple):
    """A layer of a model.

    Attributes:
        name: Its name in the model.
        module: The module.
        split: Turns its matrix of neurons into several, if one layer does the work of several.
        inner: Whether it is a part of an adapter.
    """

    name: str
    module: nn.Module
    split: Callable[[Tensor], tuple[Tensor, ...]] | None = None
    inner: bool = False

    def matrices(self) -> tuple[Tensor, ...]:
        """The neurons, one matrix (neurons, ...) for each part or group."""
        groups = groups_of(self.module)
        return groups if self.split is None or len(groups) > 1 else self.split(groups[0])

    @property
    def parameters(self) -> list[Tensor]:
        """The parameters behind them."""
        return stored(self.module)


class Matrix(NamedTuple):
    """A parameter of any module as a layer: the user says whether its rows or its columns are neurons."""

    name: str
    module: nn.Module
    attribute: str
    columns: bool
    parts: int

    def matrices(self) -> tuple[Tensor, ...]:
        """The neurons, one matrix for each part."""
        weight = _whole(getattr(self.module, self.attribute))
        return (weight.flatten(1).T if self.columns else weight).chunk(self.parts)

    @property
    def parameters(self) -> list[Tensor]:
        """The parameter itself."""
        return [getattr(self.module, self.attribute)]


def matrix_of(model: nn.Module, name: str, how: str | tuple[str, int]) -> Matrix:
    """The parameter of a name as a layer. `how` is "rows" or "columns", or one of these and the number of parts."""
    side, parts = (how, 1) if isinstance(how, str) else how
    path, _, attribute = name.rpartition(".")
    try:
        module = model.get_submodule(path)
        weight = getattr(module, attribute)
    except AttributeError:
        raise ValueError(f"the model has no parameter {name!r}") from None
    if not isinstance(weight, Tensor) or weight.ndim < 2:
        raise ValueError(f"{name!r} is not a matrix of weights")
    neurons = weight[0].numel() if side == "columns" else len(weight)
    if side not in ("rows", "columns") or parts < 1 or neurons % parts or neurons // parts < 2:
        wanted = '"rows" or "columns", or one of these and a number of parts that divides its neurons'
        raise ValueError(f"`also` of {name!r} must be {wanted}, got {how!r}")
    return Matrix(name, module, attribute, side == "columns", parts)


def is_layer(module: nn.Module) -> bool:
    """Whether a module is of a kind that has neurons."""
    return isinstance(module, _KINDS) or _is_transposed(module) or (is_adapter(module) and is_layer(base_of(module)))


def is_adapter(module: nn.Module) -> bool:
    """Whether a module is a layer of PEFT: another layer (`base_layer`) with what is learnt in addition."""
    return isinstance(getattr(module, "base_layer", None), nn.Module) and hasattr(module, "active_adapters")


def base_of(module: nn.Module) -> nn.Module:
    """The layer inside the adapters of PEFT; without adapters, the module itself."""
    while is_adapter(module):
        module = module.base_layer  # type: ignore[assignment]
    return module


def _is_transposed(module: nn.Module) -> bool:
    """Whether a module is the Conv1D of transformers: a linear layer whose weight is inputs × outputs."""
    return type(module).__name__ == "Conv1D" and hasattr(module, "nf") and getattr(module.weight, "ndim", 0) == 2


def groups_of(layer: nn.Module) -> tuple[Tensor, ...]:
    """The neurons of a layer, as one matrix per group.

    Args:
        layer: A Linear layer, a convolution (transposed too), nn.MultiheadAttention, or Conv1D of transformers; or one
            of these with adapters of PEFT.

    Returns:
        Tensors of shape (neurons, ...), views of the weight if possible: one for each group of a convolution, and three
        for the queries, keys and values of attention. A sharded weight (`fully_shard`) is gathered. With adapters it is
        the weight that acts, such as base + B·A, differentiable with respect to the adapter.

    Example:
        >>> [tuple(w.shape) for w in hs.regularize.groups_of(torch.nn.Conv2d(4, 6, 3, groups=2))]
        [(3, 2, 3, 3), (3, 2, 3, 3)]
    """
    base = base_of(layer)
    weights = tuple(_whole(getattr(base, name)) for name in weight_names(base))
    if base is not layer:
        weights = (_acting(layer, base, weights[0]),)
    if isinstance(base, nn.MultiheadAttention):
        return weights if len(weights) == 3 else weights[0].chunk(3)
    if _is_transposed(base):
        return (weights[0].T,)
    groups = base.groups if isinstance(base, _ConvNd) else 1
    if isinstance(base, _ConvTransposeNd):  # stored as in × out/groups × kernel
        return weights[0].unflatten(0, (groups, -1)).transpose(1, 2).unbind()
    return weights if groups == 1 else weights[0].unflatten(0, (groups, -1)).unbind()


def _acting(layer: nn.Module, base: nn.Module, weight: Tensor) -> Tensor:
    """The weight that acts in a layer with adapters, in the layout of the base's weight."""
    if getattr(layer, "disable_adapters", False) or getattr(layer, "merged", False):
        return weight
    if layer.base_layer is base and weight.is_floating_point() and _is_plain_lora(layer):
        known = [name for name in layer.active_adapters if name in layer.lora_A]  # type: ignore[union-attr,operator]
        return weight + sum(layer.get_delta_weight(name).to(weight) for name in known)  # type: ignore[operator]
    found = _map_of(layer, base)
    return found.T if _is_transposed(base) else found


def _is_plain_lora(layer: Any) -> bool:
    return hasattr(layer, "lora_A") and not any(getattr(layer, "use_dora", {}).values())


def _map_of(layer: nn.Module, base: nn.Module) -> Tensor:
    """The matrix, outputs × inputs, of whatever linear map a layer computes: what it makes of unit vectors."""
    weight = next(base.parameters())
    inputs = getattr(base, "in_features", None) or weight.shape[0]
    dtype = weight.dtype if weight.is_floating_point() else torch.float32
    learning = {module: module.training for module in layer.modules()}
    layer.eval()  # without the dropout of adapters
    try:
        with without_autocast(weight):
            units = torch.eye(inputs, dtype=dtype, device=weight.device)
            return (layer(units) - layer(torch.zeros_like(units[:1]))).T
    finally:
        for module, was in learning.items():
            module.training = was


def _whole(weight: Tensor) -> Tensor:
    """The full weight, if processes share it (fully_shard)."""
    return weight.full_tensor() if hasattr(weight, "full_tensor") else weight


def weight_names(layer: nn.Module) -> tuple[str, ...]:
    """Attribute names of a layer's weights."""
    if not isinstance(layer, nn.MultiheadAttention):
        return ("weight",)
    packed = layer.in_proj_weight is not None
    return ("in_proj_weight",) if packed else ("q_proj_weight", "k_proj_weight", "v_proj_weight")


def splitter(name: str, module: nn.Module, parent: nn.Module | None) -> Callable[[Tensor], tuple[Tensor, ...]] | None:
    """How to split a layer that computes queries, keys and values at once; None if it is not one."""
    last, base = name.rpartition(".")[2], base_of(module)
    if last not in _FUSED or isinstance(base, _ConvNd | nn.MultiheadAttention):
        return None
    if last not in _BY_HEAD:
        return _thirds
    heads = next((getattr(parent, key) for key in _HEADS if isinstance(getattr(parent, key, None), int)), None)
    return None if heads is None else partial(_by_head, heads=heads)


def _thirds(w: Tensor) -> tuple[Tensor, ...]:
    """Queries, keys and values, if there are equally many of each."""
    return w.chunk(3) if len(w) == 3 * w.shape[1] else (w,)


def _by_head(w: Tensor, heads: int) -> tuple[Tensor, ...]:
    if len(w) != 3 * w.shape[1] or len(w) % (3 * heads):
        return (w,)
    return w.unflatten(0, (heads, 3, -1)).transpose(0, 1).flatten(1, 2).unbind()


def too_small(layer: nn.Module) -> str | None:
    """Why a layer has no directions to spread: each group needs two neurons of two weights. None if it has."""
    if is_lazy(layer):
        return None
    base = base_of(layer)
    if isinstance(base, _ConvNd):
        neurons = base.out_channels // base.groups
        weights = base.in_channels // base.groups * prod(base.kernel_size)
    elif isinstance(base, nn.MultiheadAttention):
        neurons, weights = base.embed_dim, min(base.embed_dim, base.kdim, base.vdim)
    elif _is_transposed(base):
        neurons, weights = int(base.nf), len(next(base.parameters()))  # type: ignore[arg-type]
    else:
        neurons, weights = base.out_features, base.in_features  # type: ignore[assignment]
    if neurons > 1 and weights > 1:
        return None
    if isinstance(base, _ConvNd) and base.groups > 1:
        return "depthwise convolution"
    return "one neuron" if neurons < 2 else "one weight per neuron"


def is_lazy(layer: nn.Module) -> bool:
    return any(isinstance(weight, UninitializedParameter) for weight in stored(layer))


def stored(layer: nn.Module) -> list[Tensor]:
    """The parameters behind a layer's weights, with those of its adapters."""
    base = base_of(layer)
    found: list[Tensor] = []
    for name in weight_names(base):
        if is_parametrized(base, name):
            found += base.parametrizations[name].parameters()  # type: ignore[index,union-attr]
        elif base._parameters.get(name) is not None:
            found.append(getattr(base, name))
        else:  # made by a hook from weight_g, weight_orig, …
            hooked = [p for key, p in base.named_parameters(recurse=False) if key.startswith(f"{name}_")]
            found += hooked or [getattr(base, name)]
    if base is not layer:
        own = {id(parameter) for parameter in base.parameters()}
        found += [parameter for parameter in layer.parameters() if id(parameter) not in own]
    return found


def is_matrix_parameter(layer: nn.Module) -> bool:
    """Whether its weights are matrix parameters or parametrized, not made by a hook."""
    base = base_of(layer)
    if base is not layer:
        return True
    weights = [base._parameters.get(name) for name in weight_names(base) if not is_parametrized(base, name)]
    return all(weight is not None and weight.ndim > 1 for weight in weights)


def is_trainable(layer: nn.Module) -> bool:
    return any(parameter.requires_grad for parameter in stored(layer))
