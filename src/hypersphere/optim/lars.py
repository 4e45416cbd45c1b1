"""LARS: momentum SGD whose step for each weight tensor is proportional to that tensor's norm."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from hypersphere.kernels import usable

Tensors = list[Tensor] | tuple[Tensor, ...]


class LARS(torch.optim.Optimizer):
    """u = g + λw;  v ← μv + η‖w‖/‖u‖ · u;  w ← w − lr · v  (You et al. 2017, as BYOL uses it).

    A group with `adapt=False` (biases and norms) takes the plain step, v ← μv + u; so does a w or u of norm 0.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        trust: float = 0.001,
    ) -> None:
        if not (isinstance(lr, Tensor) or lr >= 0) or not 0 <= momentum < 1 or not weight_decay >= 0:
            raise ValueError(f"lr {lr} and weight_decay {weight_decay} must be at least 0, momentum {momentum} below 1")
        if not trust > 0:
            raise ValueError(f"trust must be above 0, not {trust}")
        defaults = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "trust": trust, "adapt": True}
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """`closure`, if there is one, computes the loss, which is returned, and its gradients."""
        with torch.enable_grad():
            loss = None if closure is None else closure()
        for group in self.param_groups:
            weights = [w for w in group["params"] if w.grad is not None]
            if not weights:
                continue
            for w in weights:
                if "momentum" not in self.state[w]:
                    self.state[w]["momentum"] = torch.zeros_like(w)
            momenta = [self.state[w]["momentum"] for w in weights]
            if usable(weights[0]) and self._fused(group, weights, momenta):
                continue
            updates: Tensors = [w.grad for w in weights]
            if group["weight_decay"]:
                updates = torch._foreach_add(updates, weights, alpha=group["weight_decay"])
            if group["adapt"]:
                updates = torch._foreach_mul(updates, self._ratios(weights, updates, group["trust"]))
            torch._foreach_mul_(momenta, group["momentum"])
            torch._foreach_add_(momenta, updates)
            torch._foreach_add_(weights, torch._foreach_mul(momenta, -group["lr"]))
        return loss

    @staticmethod
    def _fused(group: dict[str, Any], weights: Tensors, momenta: Tensors) -> bool:
        """All tensors of the group at once, where there is a kernel for them."""
        from hypersphere.kernels import update

        gradients = [_laid_out_as(w, w.grad) for w in weights if w.grad is not None]
        if not update.takes(weights, gradients, momenta):
            return False
        options = {name: group[name] for name in ("lr", "momentum", "trust", "adapt")}
        update.lars(weights, gradients, momenta, decay=group["weight_decay"], **options)
        return True

    @staticmethod
    def _ratios(weights: Tensors, updates: Tensors, trust: float) -> list[Tensor]:
        norms = torch.stack(torch._foreach_norm(weights))
        update_norms = torch.stack(torch._foreach_norm(updates))
        ratios = torch.where((norms > 0) & (update_norms > 0), trust * norms / update_norms, 1.0)
        return list(ratios.unbind())


def _laid_out_as(weight: Tensor, gradient: Tensor) -> Tensor:
    return gradient if gradient.stride() == weight.stride() else torch.empty_like(weight).copy_(gradient)
