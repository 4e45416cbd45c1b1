"""Normalization of rows to points on the unit sphere."""

import torch
from torch import Tensor
from torch._C import _are_functorch_transforms_active


def unit(x: Tensor) -> Tensor:
    """Normalize each row to unit length.

    A zero row stays zero and has exactly zero gradient. No finite row overflows or underflows, because rows are first
    divided by their largest entry.

    Args:
        x: Points of shape (..., D), any float dtype.

    Returns:
        A tensor of the same shape, differentiable with respect to `x`; float32 if `x` is half precision.

    Raises:
        IndexError: If `x` has no dimensions.

    Example:
        >>> hs.sphere.unit(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
        tensor([[0.6000, 0.8000],
                [0.0000, 0.0000]])
    """
    x = to_full_precision(x)
    largest = x.detach().abs().amax(dim=-1, keepdim=True)
    nonzero = largest != 0  # also true for NaN, which must not vanish
    scaled = x / torch.where(nonzero, largest, 1)
    norm = torch.linalg.vector_norm(scaled, dim=-1, keepdim=True)
    return torch.where(nonzero, scaled / torch.where(nonzero, norm, 1), 0)


def to_full_precision(x: Tensor) -> Tensor:
    """Half precision to float32; other dtypes unchanged."""
    if x.dtype.itemsize >= 4:
        return x
    wide = x.float()
    if x.dtype == torch.float16 and x.is_leaf and wide.requires_grad:
        limit = torch.finfo(torch.float16).max
        wide.register_hook(lambda gradient: gradient.clamp(-limit, limit))  # keeps the gradient of half weights finite
    return wide


def inside_vmap() -> bool:
    """Whether torch.vmap or another transformation of torch.func is active."""
    return _are_functorch_transforms_active()


def needs_gradient(*tensors: Tensor) -> bool:
    """Whether any tensor needs a gradient; inside torch.vmap, where tensors do not tell, assume so."""
    return torch.is_grad_enabled() and (inside_vmap() or any(x.requires_grad for x in tensors))


def without_autocast(x: Tensor) -> torch.autocast:
    """Disable autocast on the device of x (on the CPU for meta tensors)."""
    return torch.autocast("cpu" if x.is_meta else x.device.type, enabled=False)
