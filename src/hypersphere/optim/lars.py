"""LARS: SGD with momentum and a step for each tensor proportional to the tensor's norm."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from hypersphere.kernels import usable

Tensors = list[Tensor] | tuple[Tensor, ...]


class LARS(torch.optim.Optimizer):
    """LARS (You et al., 2017), as BYOL uses it.

    The step is u = g + λw, v ← μv + η‖w‖/‖u‖ · u, w ← w − lr · v. A group with `adapt=False` uses v ← μv + u instead,
    and so does a tensor if w or u has norm 0. A group without `adapt` adapts if it has weight decay: recipes exempt
    biases and norms by giving them none, as the LARS of lightly and timm expects.

    Args:
        params: Parameters or parameter groups.
        lr: Learning rate, at least 0.
        momentum: Momentum μ, from 0 to below 1.
        weight_decay: Weight decay λ, at least 0.
        trust: Trust coefficient η, above 0.

    Raises:
        ValueError: If an option is out of range.

    Example:
        >>> model = torch.nn.Linear(3, 2)
        >>> groups = [{"params": [model.weight]}, {"params": [model.bias], "adapt": False}]
        >>> optimizer = hs.optim.LARS(groups, lr=0.2, weight_decay=1e-6)
        >>> model(torch.ones(4, 3)).sum().backward()
        >>> optimizer.step()
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
            given = f"got lr {lr}, momentum {momentum}, weight_decay {weight_decay}"
            raise ValueError(f"lr, momentum and weight_decay must be at least 0, and momentum below 1, {given}")
        if not trust > 0:
            raise ValueError(f"trust must be above 0, got {trust}")
        defaults = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "trust": trust, "adapt": None}
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update the parameters. `closure`, if given, computes the loss, which is returned, and the gradients."""
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
            if _adapts(group):
                updates = torch._foreach_mul(updates, self._ratios(weights, updates, group["trust"]))
            torch._foreach_mul_(momenta, group["momentum"])
            torch._foreach_add_(momenta, updates)
            torch._foreach_add_(weights, torch._foreach_mul(momenta, -group["lr"]))
        return loss

    @staticmethod
    def _fused(group: dict[str, Any], weights: Tensors, momenta: Tensors) -> bool:
        """Update all tensors of the group by one kernel, if there is one for them."""
        from hypersphere.kernels import update

        gradients = [_laid_out_as(w, w.grad) for w in weights if w.grad is not None]
        if not update.takes(weights, gradients, momenta):
            return False
        options = {name: group[name] for name in ("lr", "momentum", "trust")}
        update.lars(weights, gradients, momenta, decay=group["weight_decay"], adapt=_adapts(group), **options)
        return True

    @staticmethod
    def _ratios(weights: Tensors, updates: Tensors, trust: float) -> list[Tensor]:
        norms = torch.stack(torch._foreach_norm(weights))
        update_norms = torch.stack(torch._foreach_norm(updates))
        ratios = torch.where((norms > 0) & (update_norms > 0), trust * norms / update_norms, 1.0)
        return list(ratios.unbind())


def _adapts(group: dict[str, Any]) -> bool:
    adapt = group["adapt"]
    return bool(group["weight_decay"]) if adapt is None else adapt


def _laid_out_as(weight: Tensor, gradient: Tensor) -> Tensor:
    return gradient if gradient.stride() == weight.stride() else torch.empty_like(weight).copy_(gradient)
