"""Fine-tuning: a copy of the encoder is trained with labels, under a new linear layer."""

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hypersphere.data import Loader, balanced
from hypersphere.errors import Diverged
from hypersphere.evaluate.features import Accuracy, accuracy, encode, features_of, frozen
from hypersphere.evaluate.linear import random_crops
from hypersphere.optim import scaled, warmup_cosine
from hypersphere.probes import Tuned
from hypersphere.util.random_numbers import FEW_LABELS


class Labels(NamedTuple):
    """Labels that a probe uses, and for how long."""

    share: float  # of the training images
    epochs: int


LABELS: dict[Tuned, Labels] = {
    "fine-tune": Labels(1.0, epochs=30),
    "semi-10": Labels(0.1, epochs=30),
    "semi-1": Labels(0.01, epochs=60),
}


def few_labels(train: Loader, share: float) -> Loader:
    """A share of labelled images with as many of each class, at least one.

    The images are the same for every run, and a smaller share is part of a larger one.

    Args:
        train: Labelled images.
        share: Between 0 and 1.

    Returns:
        The chosen images; `train` itself if `share` is 1.

    Example:
        >>> import hypersphere as hs
        >>> from hypersphere.data import load_data
        >>> from hypersphere.views import PIPELINES
        >>> train, _ = (images.loader(PIPELINES["digits"], 0, torch.device("cpu")) for images in load_data("digits"))
        >>> len(train), len(hs.evaluate.few_labels(train, 0.1))
        (1137, 110)
    """
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
    """Accuracy of a copy of the encoder after training it, with a linear layer on top, on random crops and flips.

    The optimizer is SGD with Nesterov momentum 0.9, a cosine schedule and no weight decay. Test images are centre
    crops.

    The defaults follow SimCLR with few labels of ImageNet, and lie within the values that BYOL searches: no
    regularization, lr 0.05 for a batch of 256, 60 epochs with 1 % of the labels and 30 with 10 %. For small datasets
    the batch is smaller, and the layer, which starts at zero, learns ten times as fast: few images make few updates.

    Args:
        encoder: A module that maps images of shape (B, C, H, W) to features of shape (B, D). It does not change.
        train: Labelled images to train on.
        test: Labelled images to measure the accuracy on.
        epochs: Passes over `train`.
        batch: Images per update; all of `train` if that has fewer.
        lr: Peak learning rate of the encoder for a batch of 256; it scales with the batch.
        head_lr: The same for the linear layer.
        seed: Seed of the order of the images.
        precision: dtype in which the encoder computes.
        after_epoch: Called with the number of epochs that are done.

    Returns:
        Top-1 and top-5 accuracy in per cent after the last epoch.

    Raises:
        Diverged: If the loss or the scores are not finite.

    Example:
        >>> import hypersphere as hs
        >>> from hypersphere.data import load_data
        >>> from hypersphere.views import PIPELINES
        >>> train, test = (images.loader(PIPELINES["digits"], 0, torch.device("cpu")) for images in load_data("digits"))
        >>> encoder = nn.Sequential(nn.Flatten(), nn.Linear(64, 32))
        >>> hs.evaluate.fine_tune(encoder, train, test, epochs=2).top1 > 50
        True
    """
    options: Any = {"batch": batch, "lr": lr, "head_lr": head_lr, "seed": seed, "precision": precision}
    network = tuned_copy(encoder, train, epochs=epochs, after_epoch=after_epoch, **options)
    scores, truth = network.scores(test)
    _check_finite(scores, f"scores are not finite after epoch {epochs} of {epochs} on {len(train)} images")
    return accuracy(scores, truth)


def tuned_copy(
    encoder: nn.Module,
    train: Loader,
    *,
    epochs: int,
    batch: int = 128,
    lr: float = 0.05,
    head_lr: float = 0.5,
    seed: int = 0,
    precision: torch.dtype = torch.float32,
    after_epoch: Callable[[int], None] = lambda epoch: None,
) -> "TunedCopy":
    """A copy of the encoder after training it with a linear layer, as `fine_tune` does."""
    batch = min(batch, len(train))
    epoch_steps = len(train) // batch
    on = f"of {epochs} on {len(train)} images"
    for step, (inputs, labels) in enumerate(random_crops(train, epochs, batch, seed, precision)):
        if step == 0:
            with frozen(encoder):
                width = encode(encoder, inputs[:1], precision).shape[1]
            network = TunedCopy(encoder, width, len(train.classes), train.labels.device, precision)
        rate = warmup_cosine(step, epochs * epoch_steps, 0, scaled(1.0, batch))
        loss = network.learn(inputs, labels, lr * rate, head_lr * rate)
        epoch, rest = divmod(step + 1, epoch_steps)
        if rest == 0:
            _check_finite(loss, f"the loss is {loss:.3g} after epoch {epoch} {on}")
            after_epoch(epoch)
    return network


def _check_finite(values: Tensor, problem: str) -> None:
    if not bool(values.isfinite().all()):
        raise Diverged(
            f"fine-tuning diverged: {problem}; choose other `probes`, or a smaller lr for evaluate.fine_tune"
        )


class TunedCopy:
    """A copy of an encoder, and a linear layer on it that starts at zero; trained by SGD with Nesterov momentum."""

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
        """Scores of shape (N, classes) by the encoder in evaluation mode, and the true labels."""
        features, labels = features_of(test, self.encoder, self.precision)
        return F.linear(features, self.weight, self.bias).detach(), labels
