"""All weights of a network in 16 bits at once, where autocast would convert them one by one."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.utils.parametrize import is_parametrized

from hypersphere.methods import Batch, Method, Step

AUTOCAST = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)  # whose weights and biases autocast converts


class _Narrow(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, dtype: torch.dtype, *weights: Tensor) -> tuple[Tensor, ...]:
        return _converted(weights, dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        wide = iter(_converted([g for g in gradients if g is not None], torch.float32))
        return None, *(None if g is None else next(wide) for g in gradients)


def _converted(tensors: Any, dtype: torch.dtype) -> tuple[Tensor, ...]:
    found = [torch.empty_like(tensor, dtype=dtype) for tensor in tensors]
    if found:
        torch._foreach_copy_(found, list(tensors))
    return tuple(found)


class Narrowed:
    """A method's loss under autocast, its weights converted beforehand; gradients reach the weights themselves."""

    def __init__(self, method: Method, dtype: torch.dtype) -> None:
        self.method, self.dtype = method, dtype
        named = dict(_autocast_weights(method))
        self.trained = {name: weight for name, weight in named.items() if weight.requires_grad}
        self.others = {name: weight for name, weight in named.items() if not weight.requires_grad}

    def __call__(self, batch: Batch) -> Step:
        weights = dict(zip(self.trained, _Narrow.apply(self.dtype, *self.trained.values()), strict=True))
        weights |= zip(self.others, _converted(self.others.values(), self.dtype), strict=True)
        return functional_call(self.method, weights, (batch,))


def _autocast_weights(method: nn.Module) -> Iterator[tuple[str, Tensor]]:
    for path, module in method.named_modules():
        if type(module) in AUTOCAST and not is_parametrized(module):
            yield from ((f"{path}.{name}", weight) for name, weight in module.named_parameters(recurse=False))
