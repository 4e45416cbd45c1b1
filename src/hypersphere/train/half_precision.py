"""Convert all weights of a network to 16 bits at once; autocast would convert them one by one."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.func import functional_call
from torch.nn.utils.parametrize import is_parametrized

from hypersphere.methods import Batch, Method, Step
from hypersphere.nn.patches import PatchConvolution

AUTOCAST = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, PatchConvolution)  # whose weights and biases autocast converts


class _ToHalf(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, dtype: torch.dtype, *weights: Tensor) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)  # an unused weight has no gradient, instead of zeros
        return _converted(weights, dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        wide = iter(_converted([g for g in gradients if g is not None], torch.float32))
        return None, *(None if g is None else next(wide) for g in gradients)


def _converted(tensors: Any, dtype: torch.dtype) -> tuple[Tensor, ...]:
    found = [torch.empty_like(tensor, dtype=dtype) for tensor in tensors]
    if found:
        torch._foreach_copy_(found, list(tensors))
    return tuple(found)


class HalfPrecisionLoss:
    """A method's loss under autocast with weights converted beforehand. Gradients reach the original weights."""

    def __init__(self, method: Method, dtype: torch.dtype) -> None:
        self.method, self.dtype = method, dtype
        self.names: dict[Tensor, list[str]] = {}  # a weight shared by several layers has several
        for name, weight in _autocast_weights(method):
            self.names.setdefault(weight, []).append(name)

    def __call__(self, batch: Batch) -> Step:
        trained = [weight for weight in self.names if weight.requires_grad]
        others = [weight for weight in self.names if not weight.requires_grad]
        narrow = zip(
            [*trained, *others], [*_ToHalf.apply(self.dtype, *trained), *_converted(others, self.dtype)], strict=True
        )
        weights = {name: converted for weight, converted in narrow for name in self.names[weight]}
        return functional_call(self.method, weights, (batch,), tie_weights=False)


def _autocast_weights(method: nn.Module) -> Iterator[tuple[str, Tensor]]:
    for path, module in method.named_modules(remove_duplicate=False):
        if type(module) in AUTOCAST and not is_parametrized(module):
            own = dict(module.named_parameters(recurse=False))
            yield from ((f"{path}.{name}", own[name]) for name in ("weight", "bias") if name in own)
