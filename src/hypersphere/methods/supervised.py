"""Supervised (the baseline): a linear classifier on the encoder, both learnt from the labels of each view."""

import torch.nn.functional as F
from torch import Tensor, nn

from hypersphere.distributed.collectives import gather
from hypersphere.errors import UserError
from hypersphere.methods.base import Batch, Method, Step
from hypersphere.nn import each_view
from hypersphere.sphere.unit import widen


def cross_entropy(logits: Tensor, label: Tensor) -> Tensor:
    """The mean over the images whose label is known (−1 is not); 0 if there is none."""
    known = (label >= 0).sum().clamp(min=1)
    return F.cross_entropy(widen(logits), label, ignore_index=-1, reduction="sum") / known


class Supervised(Method):
    """The training of He et al. (2016) on CIFAR-10: SGD of lr 0.1 for a batch of 128, weight decay 0.0001, 164 epochs.

    Published for ImageNet, and as here: lr 0.1 for a batch of 256, weight decay 0.0001, 90 epochs. Different here: two
    views of each image, by the augmentations of the self-supervised methods; the learning rate falls by a cosine; norms
    and biases have no weight decay. There is no projector: losses that spread projections see the encoder's output.
    """

    takes_one_view = True

    def __init__(self, encoder: nn.Module, features: int, classes: int = 2) -> None:
        super().__init__()
        if classes < 2:
            raise UserError("supervised needs images with labels, of two classes or more")
        self.encoder = encoder
        self.classifier = nn.Linear(features, classes)

    def forward(self, batch: Batch) -> Step:
        if batch.label is None:
            raise UserError("supervised needs images with labels")
        features = each_view(self.encoder, batch.views)
        label = gather(batch.label)
        losses = [cross_entropy(gather(self.classifier(h)), label) for h in features]
        return self.step("cross_entropy", sum(losses[1:], losses[0]) / len(losses), *features)
