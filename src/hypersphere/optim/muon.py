"""Muon: momentum whose steps have singular values near one: all directions of a layer move at the same speed."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

STEPS = 5  # of the Newton–Schulz iteration
QUINTIC = (3.4445, -4.7750, 2.0315)  # Jordan's coefficients: singular values end between about 0.7 and 1.2
WIDE = 3  # columns for each row, from which it is faster to multiply the steps before they are applied
RMS = 0.2  # of the entries of AdamW's usual step, which steps here are scaled to (Liu et al., 2025)
BETAS, EPS = (0.9, 0.999), 1e-8  # of AdamW


class Muon(torch.optim.Optimizer):
    """Muon (Jordan et al., 2024) for matrices and convolutions, AdamW for biases and norms.

    The step of a matrix w of A × B is 0.2 √max(A, B) · NS(u), with m ← μm + (1 − μ)g and u = μm + (1 − μ)g. NS makes
    the singular values of u nearly equal. Filters of a convolution are rows. The factor gives steps AdamW's size, so
    that one learning rate serves all parameters. Weight decay is AdamW's, too: w ← (1 − lr · λ)w.

    Args:
        params: Parameters or parameter groups.
        lr: Learning rate, at least 0.
        momentum: Momentum μ, from 0 to below 1.
        weight_decay: Weight decay λ, at least 0.

    Raises:
        ValueError: If an option is out of range.

    Example:
        >>> model = torch.nn.Linear(3, 2)
        >>> optimizer = hs.optim.Muon(model.parameters(), lr=0.01)
        >>> model(torch.ones(4, 3)).sum().backward()
        >>> optimizer.step()
    """

    def __init__(
        self, params: Iterable[Any], lr: float | Tensor, momentum: float = 0.95, weight_decay: float = 0.0
    ) -> None:
        if not (isinstance(lr, Tensor) or lr >= 0) or not 0 <= momentum < 1 or not weight_decay >= 0:
            given = f"got lr {lr}, momentum {momentum}, weight_decay {weight_decay}"
            raise ValueError(f"lr, momentum and weight_decay must be at least 0, and momentum below 1, {given}")
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update the parameters. `closure`, if given, computes the loss, which is returned, and the gradients."""
        with torch.enable_grad():
            loss = None if closure is None else closure()
        for group in self.param_groups:
            weights = [w for w in group["params"] if w.grad is not None]
            if weights and group["weight_decay"]:
                torch._foreach_mul_(weights, 1 - group["lr"] * group["weight_decay"])
            self._step_matrices([w for w in weights if w.ndim > 1], group)
            if vectors := [w for w in weights if w.ndim < 2]:
                self._step_vectors(vectors, group["lr"])
        return loss

    def _step_matrices(self, weights: list[Tensor], group: dict[str, Any]) -> None:
        """Matrices of one shape are orthogonalized together."""
        alike: dict[tuple[int, int], list[Tensor]] = {}
        for w in weights:
            alike.setdefault((len(w), w[0].numel()), []).append(w)
        for (rows, columns), some in alike.items():
            updates = orthogonalized(torch.stack([self._update(w, group["momentum"]) for w in some]))
            steps = updates * (-RMS * max(rows, columns) ** 0.5 * group["lr"])
            for w, step in zip(some, steps, strict=True):
                w.add_(step.view(w.shape))

    def _update(self, w: Tensor, momentum: float) -> Tensor:
        """Nesterov's momentum of a weight, as a matrix."""
        assert w.grad is not None
        state = self.state[w]
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(w)
        state["momentum"].lerp_(w.grad, 1 - momentum)
        return w.grad.lerp(state["momentum"], momentum).flatten(1)

    def _step_vectors(self, weights: list[Tensor], lr: float | Tensor) -> None:
        """AdamW without its decay. The number of steps is a tensor, so that a CUDA graph can count."""
        for w in weights:
            if "count" not in self.state[w]:
                new = torch.zeros_like(w, dtype=torch.float32)  # 0.999 is 1 in bfloat16
                self.state[w] |= {"first": new, "second": new.clone(), "count": new.new_zeros(())}
        gradients = [w.grad.float() for w in weights if w.grad is not None]
        first, second, count = ([self.state[w][name] for w in weights] for name in ("first", "second", "count"))
        torch._foreach_lerp_(first, gradients, 1 - BETAS[0])
        torch._foreach_lerp_(second, torch._foreach_mul(gradients, gradients), 1 - BETAS[1])
        torch._foreach_add_(count, 1)
        means = torch._foreach_div(first, [1 - BETAS[0] ** n for n in count])
        sizes = torch._foreach_sqrt(torch._foreach_div(second, [1 - BETAS[1] ** n for n in count]))
        steps = torch._foreach_div(means, torch._foreach_add(sizes, EPS))
        moved = torch._foreach_mul(steps, lr)
        torch._foreach_sub_(weights, [move.to(w.dtype) for move, w in zip(moved, weights, strict=True)])


def orthogonalized(matrices: Tensor) -> Tensor:
    """Bring the singular values of matrices (K × A × B) near one by the Newton–Schulz iteration.

    x ← p(xxᵀ) x with p(g) = a + bg + cg², in bfloat16 on a GPU. A matrix of zeros stays zero.
    """
    tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.mT if tall else matrices
    x = x.to(torch.bfloat16 if x.is_cuda else torch.float32)
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    if x.shape[2] >= WIDE * x.shape[1] and x.dtype == torch.float32:
        x = _product_of_polynomials(x @ x.mT) @ x
    else:
        a, b, c = QUINTIC
        for _ in range(STEPS):
            gram = x @ x.mT
            x = a * x + (b * gram + c * gram @ gram) @ x
    return (x.mT if tall else x).to(matrices.dtype)


def _product_of_polynomials(gram: Tensor) -> Tensor:
    """The matrix by which all steps together multiply x: they are polynomials of one matrix, so they commute.

    The next gram is p g p. For wide x this takes a third of the time, and is exact enough in single precision.
    """
    one = torch.eye(gram.shape[1], device=gram.device)
    product = p = _polynomial(gram, one)
    for _ in range(STEPS - 1):
        gram = p @ gram @ p
        p = _polynomial(gram, one)
        product = p @ product
    return product


def _polynomial(gram: Tensor, one: Tensor) -> Tensor:
    a, b, c = QUINTIC
    return a * one + b * gram + c * gram @ gram
