"""Features of named modules, heard by hooks, and their measures; and a regularizer's gradient in any training loop."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from hypersphere.errors import UserError, closest_name
from hypersphere.regularize import WeightRegularizer
from hypersphere.sphere import effective_rank, uniformity

__all__ = ["FeatureMonitor", "add_gradient"]


class FeatureMonitor:
    """Measures features of a model while it trains: uniformity and effective rank, and energies of its weights.

    Hooks keep the outputs of the named modules, averaged over positions, in every `every`-th step; in other steps they
    do nothing. Call `step()` after each optimizer step. The callbacks of transformers and Lightning do so.

    Args:
        model: The model. Names are those of `model.named_modules()`.
        modules: Names of modules whose outputs are measured; "" is the output of the model itself.
        regularizer: If given, the energies of its layers are measured, too.
        every: Optimizer steps between measurements.
        rows: Number of samples to keep, of the last forward passes before the measurement.

    Raises:
        UserError: If the model has no module of a name, or `every` or `rows` is too small.

    Example:
        >>> from hypersphere.integrations.feature_monitor import FeatureMonitor
        >>> model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU())
        >>> monitor = FeatureMonitor(model, ["0"], every=2)
        >>> for step in range(2):
        ...     output = model(torch.randn(16, 8))
        ...     values = monitor.step()
        >>> sorted(values)
        ['features/0/effective_rank', 'features/0/uniformity']
    """

    def __init__(
        self,
        model: nn.Module,
        modules: Sequence[str] = (),
        regularizer: WeightRegularizer | None = None,
        every: int = 50,
        rows: int = 1024,
    ) -> None:
        if every < 1 or rows < 2:
            raise UserError(f"`every` must be at least 1 and `rows` at least 2, got {every} and {rows}")
        if isinstance(modules, str):
            raise UserError(f"`modules` must be a list of names, got {modules!r}: write [{modules!r}]")
        known = dict(model.named_modules())
        for name in modules:
            if name not in known:
                close = closest_name(name, known)
                raise UserError(f"the model has no module {name!r}" + (f": did you mean {close!r}?" if close else ""))
        self.regularizer, self.every, self.rows, self.steps = regularizer, every, rows, 0
        self._heard: dict[str, list[Tensor]] = {name: [] for name in modules}
        self._handles = [known[name].register_forward_hook(self._hook(name)) for name in modules]

    def _hook(self, name: str) -> Any:
        def hear(module: nn.Module, inputs: Any, output: Any) -> None:
            if (self.steps + 1) % self.every == 0 and torch.is_grad_enabled():
                features = pooled_features(output)
                if features is not None:
                    self._heard[name] = _last([*self._heard[name], features.detach()], self.rows)

        return hear

    def step(self) -> dict[str, float]:
        """Count an optimizer step. Returns the measures in every `every`-th one, else nothing."""
        self.steps += 1
        return self.measure() if self.steps % self.every == 0 else {}

    @torch.no_grad()
    def measure(self) -> dict[str, float]:
        """Measures of what the hooks have kept, which is then forgotten, and energies.

        Returns:
            `features/NAME/uniformity` and `features/NAME/effective_rank` of each module, and `energy/NAME` of each
            layer of the regularizer. Modules without output since the last measurement, or with too few samples, are
            missing.
        """
        found = {}
        for name, parts in self._heard.items():
            features = torch.cat(parts)[-self.rows :] if parts else torch.zeros(0, 1)
            self._heard[name] = []
            if len(features) > 1:
                label = name or "output"
                found[f"features/{label}/uniformity"] = uniformity(features).item()
                found[f"features/{label}/effective_rank"] = effective_rank(features).item()
        if self.regularizer is not None:
            energies = self.regularizer.per_layer()
            found |= {f"energy/{name}": value.item() for name, value in energies.items()}
        return found

    def close(self) -> None:
        """Remove the hooks."""
        for handle in self._handles:
            handle.remove()


def _last(parts: list[Tensor], rows: int) -> list[Tensor]:
    """The parts at the end that have `rows` rows together, or more by less than a part."""
    while sum(map(len, parts[1:])) >= rows:
        parts = parts[1:]
    return parts


def pooled_features(output: Any) -> Tensor | None:
    """Features of shape (N, D) from the output of a module.

    Args:
        output: A tensor of shape (N, D), (N, tokens, D) or (N, C, H, W), which is averaged over positions; or a tuple,
            a list, or a mapping such as the outputs of transformers, whose first such tensor counts.

    Returns:
        The features; None if there is no such tensor.
    """
    if isinstance(output, Mapping):
        output = [*output.values()]
    if isinstance(output, tuple | list):
        return next((found for part in output if (found := pooled_features(part)) is not None), None)
    if not isinstance(output, Tensor) or not output.is_floating_point() or output.ndim < 2:
        return None
    if output.ndim == 3:
        return output.mean(dim=1)
    return output.flatten(2).mean(dim=2) if output.ndim > 3 else output


def add_gradient(regularizer: WeightRegularizer, scaler: Any = None) -> Tensor:
    """Add a regularizer's gradient to that of the loss. Call it once per optimizer step, before clipping.

    This is right under gradient accumulation, where a term in the loss would count once per micro-batch, or depend on
    how a library divides the loss.

    Args:
        regularizer: A regularizer of weights.
        scaler: The `torch.amp.GradScaler` of float16, if gradients are still scaled: before `scaler.unscale_`.

    Returns:
        The value of the term, a scalar tensor without gradient.

    Example:
        >>> from hypersphere.integrations.feature_monitor import add_gradient
        >>> model = torch.nn.Linear(8, 4)
        >>> add_gradient(hs.EnergyRegularizer(model)).item() > 0
        True
        >>> model.weight.grad.abs().sum().item() > 0
        True
    """
    value = regularizer()
    (value if scaler is None else scaler.scale(value)).backward()
    return value.detach()
