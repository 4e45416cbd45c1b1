"""InfoMin (Tian et al. 2020): MoCo v2 with views that share less, and with a jigsaw of the image."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from hypersphere.methods.base import Batch
from hypersphere.methods.moco import MOCO_V2, MoCo
from hypersphere.methods.options import Count, Few, Positive, Share
from hypersphere.methods.recipes import SGD, SMALL_HEADS, TRANSFORMER
from hypersphere.nn import mlp
from hypersphere.util.random_numbers import JIGSAW, uniforms


def patches_of(view: Tensor, side: int) -> Tensor:
    """Return side² squares of each image, row by row, as B · side² images. Pixels that do not fill them are left out.

    The memory format is kept, because kernels need channels last.
    """
    size, last = min(view.shape[2:]) // side, view.is_contiguous(memory_format=torch.channels_last)
    grid = view[:, :, : size * side, : size * side].unflatten(3, (side, size)).unflatten(2, (side, size))
    patches = grid.permute(0, 2, 4, 1, 3, 5).flatten(0, 2)
    return patches.contiguous(memory_format=torch.channels_last) if last else patches


def shuffled(parts: Tensor, order: Tensor) -> Tensor:
    """Order each image's parts: (B, P, D) parts and (B, P) places become (B, P·D)."""
    return parts.gather(1, order[:, :, None].expand_as(parts)).flatten(1)


class InfoMin(MoCo):
    """InfoMin: the mean of two MoCo losses, of the image and of its jigsaw, against the same key and queue.

    For the jigsaw, the encoder sees 3 × 3 patches of the query's view one by one. Their features, in random order, go
    through a projector of their own.

    Published for ImageNet, and as here: lr 0.03 for a batch of 256, weight decay 0.0001, 200 epochs, a queue of 65536,
    decay 0.999 and 2048 hidden units. Augmentations: crops of 20 % of the area or more, colour jitter of 0.8, 0.8, 0.8
    and 0.2, blur of half the views, RandAugment (2 operations, each with probability ½, of strength 10 ± 0.5 out of
    10), then grey for a fifth.

    The paper does not report CIFAR. Here it has MoCo's options and views, with the authors' temperature of 0.15. Their
    augmentations (`policy` infomin, `randaugment` 2) leave too little in common for small images and short runs: on
    CIFAR-10 they reach a k-NN accuracy of 44.5 % after 50 epochs, MoCo 64.4 %.

    Different here: patches come from the query's view, not from a separate crop without changes of colour. They fill
    their cells, without random offsets. Their features are not projected one by one before they are joined. The encoder
    must accept images of the patches' size, which a ViT does not.

    Args:
        encoder: Network from images (B, C, H, W) to features (B, `features`).
        features: Width of the encoder's output.
        seed: Seed of the patches' random order.
        hidden: Hidden units of the projector, and of the predictor if there is one.
        projection: Outputs of the projector, and of the predictor if there is one.
        temperature: Temperature of the softmax.
        tau: Decay of the moving average that computes keys.
        queue: Keys of earlier images that serve as negatives.
        jigsaw: Patches along a side of the jigsaw.

    Example:
        >>> encoder = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(2), torch.nn.Flatten())
        >>> method = hs.methods.InfoMin(encoder, features=12, hidden=8, projection=4, queue=16)
        >>> views = (torch.rand(6, 3, 9, 9), torch.rand(6, 3, 9, 9))
        >>> sorted(method(hs.methods.Batch(views, torch.arange(6), None)).terms)
        ['infomin']
    """

    recipes = {
        "default": {**SGD, "epochs": 200, "energy_layers": ("projector", "jigsaw_projector")},
        "digits": {**SMALL_HEADS, "queue": 512, "jigsaw": 2},
        "imagenet": {**MOCO_V2, "policy": "infomin", "randaugment": 2},
        "transformer": TRANSFORMER,
    }

    name = "infomin"
    updates: Tensor

    def __init__(
        self,
        encoder: nn.Module,
        features: int,
        hidden: Count = 512,
        projection: Count = 128,
        temperature: Positive = 0.15,
        tau: Share = 0.99,
        queue: Count = 4096,
        jigsaw: Few = 3,
        seed: int = 0,
    ) -> None:
        super().__init__(encoder, features, hidden, projection, temperature, tau, queue)
        self.jigsaw_projector = mlp(jigsaw**2 * features, hidden, projection, norm="none")
        self.jigsaw, self.seed = jigsaw, seed
        self.register_buffer("updates", torch.zeros((), dtype=torch.long))  # so that every step has other orders

    def sides(self, views: Sequence[int]) -> set[int]:
        return {*views, views[0] // self.jigsaw}

    def queries_of(self, batch: Batch) -> tuple[Tensor, ...]:
        """Return the projections of the image and of its jigsaw."""
        # patches go first, so that BatchNorm's running statistics lean to whole images, which evaluation uses
        pieces = self.jigsaw**2
        features = self.encoder(patches_of(batch.views[0], self.jigsaw)).unflatten(0, (-1, pieces))
        drawn = uniforms(pieces, batch.sample, seed=self.seed, epoch=self.updates, stream=JIGSAW)
        self.updates.add_(1)
        puzzle = self.jigsaw_projector(shuffled(features, drawn.argsort(dim=1)))
        return *super().queries_of(batch), puzzle
