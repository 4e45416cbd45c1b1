"""A callback for Lightning: a regularizer of weights, and measures of features and energies."""

from collections.abc import Sequence
from typing import Any

from hypersphere.errors import UserError
from hypersphere.integrations.feature_monitor import FeatureMonitor, add_gradient
from hypersphere.regularize import WeightRegularizer

try:
    from lightning.pytorch import Callback, LightningModule, Trainer
except ImportError:
    try:
        from pytorch_lightning import Callback, LightningModule, Trainer
    except ImportError:
        raise UserError("hypersphere.integrations.lightning needs lightning: pip install lightning") from None


class HypersphereCallback(Callback):
    """Adds a regularizer's gradient once per optimizer step, and logs measures of features and energies.

    The gradient is added before gradient clipping, and after unscaling with float16. So it counts once for any
    `accumulate_grad_batches`. It needs automatic optimization with one optimizer. The measures are those of
    `hypersphere.integrations.feature_monitor.FeatureMonitor`; `regularizer` is the value of the term.

    Args:
        regularizer: Regularizer of the module's weights; None only measures.
        modules: Names of modules whose outputs are measured, as in `LightningModule.named_modules()`.
        every: Optimizer steps between measurements. By default `log_every_n_steps` of the Trainer.
        rows: Number of samples to measure.

    Example:
        >>> regularizer = hs.EnergyRegularizer(module.backbone, weight=1)  # doctest: +SKIP
        >>> callback = HypersphereCallback(regularizer, ["backbone"])  # doctest: +SKIP
        >>> lightning.Trainer(callbacks=[callback]).fit(module)  # doctest: +SKIP
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

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not pl_module.automatic_optimization:
            advice = "call hypersphere.integrations.feature_monitor.add_gradient before optimizer.step() instead"
            raise UserError(f"the callback needs automatic optimization: {advice}")
        every = self.every or max(1, int(getattr(trainer, "log_every_n_steps", 1)))
        self._monitor = FeatureMonitor(pl_module, self.modules, self.regularizer, every, self.rows)
        self._monitor.steps = trainer.global_step

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: Any) -> None:
        assert self._monitor is not None
        if self.regularizer is not None:
            self.regularizer.progress = min(1.0, trainer.global_step / max(1, trainer.estimated_stepping_batches))
            value = add_gradient(self.regularizer)
            if (self._monitor.steps + 1) % self._monitor.every == 0:
                self._values["regularizer"] = value.item()
        self._values |= self._monitor.step()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if self._values:
            pl_module.log_dict(self._values)
            self._values = {}

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._monitor is not None:
            self._monitor.close()
