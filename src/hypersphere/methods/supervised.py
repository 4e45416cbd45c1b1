"""Supervised (the baseline): train the encoder and a linear classifier on it with labels."""

import torch.nn.functional as F
from torch import Tensor, nn

from hypersphere.distributed.collectives import gather
from hypersphere.errors import UserError
from hypersphere.methods.base import Batch, Method, Step
from hypersphere.methods.recipes import SGD
from hypersphere.nn import each_view
from hypersphere.sphere.unit import to_full_precision


def cross_entropy(logits: Tensor, label: Tensor) -> Tensor:
    """Return the mean over the images whose label is known (not −1), or 0 if there are none."""
    known = (label >= 0).sum().clamp(min=1)
    return F.cross_entropy(to_full_precision(logits), label, ignore_index=-1, reduction="sum") / known


class Supervised(Method):
    """Supervised training by He et al. (2016).

    Published for CIFAR-10, and as here: SGD of lr 0.1 for a batch of 128, weight decay 0.0001, 164 epochs. Published
    for ImageNet, and as here: lr 0.1 for a batch of 256, weight decay 0.0001, 90 epochs.

    Different here: two views of each image, with the augmentations of the self-supervised methods; a cosine decay of
    the learning rate; norms and biases have no weight decay. There is no projector: projection losses see the encoder's
    output.

    Args:
        encoder: Network from images (B, C, H, W) to features (B, `features`).
        features: Width of the encoder's output.
        classes: Number of classes, at least two.

    Raises:
        UserError: If there are fewer than two classes.

    Example:
        >>> method = hs.methods.Supervised(torch.nn.Flatten(), features=12, classes=2)
        >>> views = (torch.rand(6, 3, 2, 2), torch.rand(6, 3, 2, 2))
        >>> sorted(method(hs.methods.Batch(views, torch.arange(6), torch.arange(6) % 2)).terms)
        ['cross_entropy']
    """

    recipes = {
        "default": {
            **SGD,
            "epochs": 164,
            "batch": 128,
            "lr": 0.2,
            "weight_decay": 1e-4,
            "energy_layers": ("encoder", "classifier"),
        },
        "imagenet": {"epochs": 90, "batch": 256, "lr": 0.1},
        "transformer": {"optimizer": "adamw", "lr": 2.5e-4, "warmup": None, "weight_decay": 0.05},
    }
    takes_one_view = True

    def __init__(self, encoder: nn.Module, features: int, classes: int = 2) -> None:
        super().__init__()
        if classes < 2:
            raise UserError(f"supervised needs images with labels of at least two classes, got {classes}")
        self.encoder = encoder
        self.classifier = nn.Linear(features, classes)

    def forward(self, batch: Batch) -> Step:
        if batch.label is None:
            raise UserError("supervised needs images with labels")
        features = each_view(self.encoder, batch.views)
        label = gather(batch.label)
        losses = [cross_entropy(gather(self.classifier(h)), label) for h in features]
        return self.step("cross_entropy", sum(losses[1:], losses[0]) / len(losses), *features)
