"""A callback for the Trainer of transformers: a regularizer of weights, and measures of features and energies."""

from collections.abc import Sequence
from typing import Any

from hypersphere.errors import UserError
from hypersphere.integrations.feature_monitor import FeatureMonitor, add_gradient
from hypersphere.regularize import WeightRegularizer

try:
    from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
except ImportError:
    raise UserError("hypersphere.integrations.transformers needs transformers: pip install transformers") from None


class HypersphereCallback(TrainerCallback):
    """Adds a regularizer's gradient once per optimizer step, and logs measures of features and energies.

    The gradient is added before the first micro-batch. So it counts once for any number of micro-batches, takes part in
    gradient clipping, and is scaled like the others with float16. The measures are those of
    `hypersphere.integrations.feature_monitor.FeatureMonitor`; `regularizer` is the value of the term.

    `callback.add_to(trainer)` adds it, so that TensorBoard, Weights & Biases and others see its values.
    `Trainer(callbacks=[callback])` works, too: then they are in `trainer.state.log_history` only.

    Args:
        regularizer: Regularizer of the model's weights; None only measures.
        modules: Names of modules whose outputs are measured.
        every: Optimizer steps between measurements. By default those between two lines of the log.
        rows: Number of samples to measure.

    Example:
        >>> regularizer = hs.EnergyRegularizer(model, weight=10, target="initial")  # doctest: +SKIP
        >>> callback = HypersphereCallback(regularizer, ["vit.layernorm"])  # doctest: +SKIP
        >>> callback.add_to(trainer)  # doctest: +SKIP
        >>> trainer.train()  # doctest: +SKIP
    """

    def __init__(
        self,
        regularizer: WeightRegularizer | None = None,
        modules: Sequence[str] = (),
        every: int | None = None,
        rows: int = 1024,
    ) -> None:
        self.regularizer, self.modules, self.every, self.rows = regularizer, modules, every, rows
        self._monitor: FeatureMonitor | None = None
        self._values: dict[str, float] = {}

    def add_to(self, trainer: Trainer) -> "HypersphereCallback":
        """Add the callback to a Trainer, before the callbacks that report its log."""
        trainer.callback_handler.callbacks.insert(0, self)
        return self

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        every = self.every or max(1, int(state.logging_steps or 1))
        self._monitor = FeatureMonitor(kwargs["model"], self.modules, self.regularizer, every, self.rows)
        self._monitor.steps = state.global_step  # of a resumed run

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if self.regularizer is None:
            return
        self.regularizer.progress = state.global_step / max(1, state.max_steps)
        value = add_gradient(self.regularizer, getattr(kwargs.get("optimizer"), "scaler", None))
        assert self._monitor is not None
        if (self._monitor.steps + 1) % self._monitor.every == 0:
            self._values["regularizer"] = value.item()

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        assert self._monitor is not None
        self._values |= self._monitor.step()

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if self._values and "loss" in kwargs.get("logs", {}):
            kwargs["logs"].update(self._values)
            state.log_history[-1].update(self._values)
            self._values = {}

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if self._monitor is not None:
            self._monitor.close()
