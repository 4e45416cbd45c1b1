"""What an encoder becomes with labels: a copy is trained, as a whole, under a new linear layer."""

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hypersphere.data import Loader, balanced
from hypersphere.errors import Diverged
from hypersphere.evaluate.features import Accuracy, accuracy, encode, features_of, frozen
from hypersphere.evaluate.linear import fresh_order
from hypersphere.optim import scaled, warmup_cosine
from hypersphere.probes import Tuned
from hypersphere.util.draws import FEW_LABELS


class Labels(NamedTuple):
    """What a probe learns from, and how long."""

    share: float  # of the training images
    epochs: int


LABELS: dict[Tuned, Labels] = {
    "fine-tune": Labels(1.0, epochs=30),
    "semi-10": Labels(0.1, epochs=30),
    "semi-1": Labels(0.01, epochs=60),
}


def few_labels(train: Loader, share: float) -> Loader:
    """As many images of each class, at least one; the same ones for every run, the fewer among the more."""
    if share == 1:
        return train
    per_class = max(1, round(share * len(train) / len(train.labels.unique())))
    _, chosen = balanced(train.labels.cpu(), per_class, stream=FEW_LABELS)
    return train[chosen.to(train.labels.device)]


def fine_tune(
    encoder: nn.Module,
    train: Loader,
    test: Loader,
    *,
    epochs: int = 30,
    batch: int = 128,
    lr: float = 0.05,
    head_lr: float = 0.5,
    seed: int = 0,
    precision: torch.dtype = torch.float32,
    after_epoch: Callable[[int], None] = lambda epoch: None,
) -> Accuracy:
    """SGD (Nesterov 0.9, cosine, no decay) on fresh random crops and flips; centre crop at test; the accuracy after
    the last epoch.

    As SimCLR does with few labels of ImageNet, and BYOL within the values it searches: no regularization, lr 0.05 for a
    batch of 256, 60 epochs of 1 % of the labels and 30 of 10 %; here also 30 of all. For small sets the batch is
    smaller, and the head, which starts at zero, learns ten times as fast as the encoder: few images make few updates.
    """
    batch = min(batch, len(train))
    steps = epochs * (len(train) // batch)
    device = train.labels.device
    kind = precision if device.type == "cuda" else torch.float32
    fresh = train.cropped(fresh_order(train, epochs, batch, batch, seed), kind)
    for step, (inputs, labels) in enumerate(fresh):
        if step == 0:
            with frozen(encoder):
                width = encode(encoder, inputs[:1], precision).shape[1]
            network = TunedCopy(encoder, width, len(train.classes), device, precision)
        rate = warmup_cosine(step, steps, 0, scaled(1.0, batch))
        loss = network.learn(inputs, labels, lr * rate, head_lr * rate)
        epoch, rest = divmod(step + 1, len(train) // batch)
        if rest == 0:
            _check_finite(loss, f"its loss is {loss:.3g} after epoch {epoch} of {epochs} on {len(train)} images")
            after_epoch(epoch)
    scores, truth = network.scores(test)
    _check_finite(scores, f"it ends in scores that are no numbers, after {epochs} epochs on {len(train)} images")
    return accuracy(scores, truth)


def _check_finite(values: Tensor, told: str) -> None:
    if not bool(values.isfinite().all()):
        raise Diverged(f"fine-tuning diverged: {told}; choose other `probes`, or a smaller lr for evaluate.fine_tune")


class TunedCopy:
    """A copy of an encoder, and a linear layer on it that starts at zero; learnt by SGD with Nesterov momentum."""

    def __init__(
        self, encoder: nn.Module, features: int, classes: int, device: torch.device, precision: torch.dtype
    ) -> None:
        self.encoder = copy.deepcopy(encoder).requires_grad_().train()
        self.weight = torch.zeros(classes, features, device=device, requires_grad=True)
        self.bias = torch.zeros(classes, device=device, requires_grad=True)
        groups: list[dict[str, Any]] = [
            {"params": list(self.encoder.parameters())},
            {"params": [self.weight, self.bias]},
        ]
        self.optimizer = torch.optim.SGD(groups, lr=0.0, momentum=0.9, nesterov=True)
        self.scaler = torch.amp.GradScaler(device.type, enabled=precision == torch.float16)
        self.precision = precision

    def learn(self, inputs: Tensor, labels: Tensor, lr: float, head_lr: float) -> Tensor:
        """One update; returns the loss before it."""
        for group, rate in zip(self.optimizer.param_groups, (lr, head_lr), strict=True):
            group["lr"] = rate
        self.optimizer.zero_grad(set_to_none=True)
        features = encode(self.encoder, inputs, self.precision)
        loss = F.cross_entropy(F.linear(features, self.weight, self.bias), labels)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss.detach()

    def scores(self, test: Loader) -> tuple[Tensor, Tensor]:
        """N × classes, by the encoder in evaluation mode; and the labels."""
        features, labels = features_of(test, self.encoder, self.precision)
        return F.linear(features, self.weight, self.bias).detach(), labels
