"""Rows to points on the unit sphere."""

import torch
from torch import Tensor
from torch._C import _are_functorch_transforms_active


def unit(x: Tensor) -> Tensor:
    """Each row of x (N × D) divided by its norm, in float32 at least.

    A zero row stays zero and gets exactly zero gradient. Rows are scaled by their largest entry first, so that no
    finite row over- or underflows; normalizing ignores scale, hence that factor needs no gradient.
    """
    x = widen(x)
    largest = x.detach().abs().amax(dim=-1, keepdim=True)
    nonzero = largest != 0  # true of NaN, which must not vanish
    scaled = x / torch.where(nonzero, largest, 1)
    norm = torch.linalg.vector_norm(scaled, dim=-1, keepdim=True)
    return torch.where(nonzero, scaled / torch.where(nonzero, norm, 1), 0)


def widen(x: Tensor) -> Tensor:
    if x.dtype.itemsize >= 4:
        return x
    wide = x.float()
    if x.dtype == torch.float16 and x.is_leaf and wide.requires_grad:
        limit = torch.finfo(torch.float16).max
        wide.register_hook(lambda gradient: gradient.clamp(-limit, limit))  # finite in half weights
    return wide


def inside_vmap() -> bool:
    """Or another transformation of torch.func."""
    return _are_functorch_transforms_active()


def needs_gradient(*tensors: Tensor) -> bool:
    """Of one of them; inside torch.vmap, where a tensor does not say, it may be."""
    return torch.is_grad_enabled() and (inside_vmap() or any(x.requires_grad for x in tensors))


def without_autocast(x: Tensor) -> torch.autocast:
    """Where x lies; tensors that hold no numbers are anywhere."""
    return torch.autocast("cpu" if x.is_meta else x.device.type, enabled=False)
