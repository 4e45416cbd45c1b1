"""A regularizer of weights, and measures of features and energies, in a loop with Accelerate.

monitor = FeatureMonitor(model, ["backbone"], regularizer)
for batch in loader:
    with accelerator.accumulate(model):
        accelerator.backward(loss_of(model, batch))
        add_gradient(accelerator, regularizer)
        if accelerator.sync_gradients:
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    if accelerator.sync_gradients:
        accelerator.log(monitor.step())
"""

from typing import TYPE_CHECKING

from torch import Tensor

from hypersphere.integrations import feature_monitor
from hypersphere.integrations.feature_monitor import FeatureMonitor
from hypersphere.regularize import WeightRegularizer

if TYPE_CHECKING:
    from accelerate import Accelerator

__all__ = ["FeatureMonitor", "add_gradient"]


def add_gradient(accelerator: "Accelerator", regularizer: WeightRegularizer) -> Tensor | None:
    """Add a regularizer's gradient in the last micro-batch of an optimizer step. Call it after `accelerator.backward`.

    It counts once for any `gradient_accumulation_steps`, and is scaled like the others with float16. Call it before
    `accelerator.clip_grad_norm_`, which removes the scale.

    Args:
        accelerator: The Accelerator of the loop.
        regularizer: A regularizer of weights.

    Returns:
        The value of the term, a scalar tensor without gradient; None in other micro-batches.

    Example:
        >>> add_gradient(accelerator, regularizer)  # doctest: +SKIP
    """
    if not accelerator.sync_gradients:
        return None
    return feature_monitor.add_gradient(regularizer, accelerator.scaler)
