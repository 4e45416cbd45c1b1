"""InfoMin (Tian et al. 2020): MoCo v2 with views that share less, and a jigsaw of the image beside it."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from hypersphere.methods.base import Batch
from hypersphere.methods.moco import MoCo
from hypersphere.nn import mlp
from hypersphere.util.draws import JIGSAW, uniforms


def patches_of(view: Tensor, side: int) -> Tensor:
    """side² squares of each image, row by row, as B · side² images; what does not fill them is left out. Kernels want
    channels last where the view has them so."""
    size, last = min(view.shape[2:]) // side, view.is_contiguous(memory_format=torch.channels_last)
    grid = view[:, :, : size * side, : size * side].unflatten(3, (side, size)).unflatten(2, (side, size))
    patches = grid.permute(0, 2, 4, 1, 3, 5).flatten(0, 2)
    return patches.contiguous(memory_format=torch.channels_last) if last else patches


def shuffled(parts: Tensor, order: Tensor) -> Tensor:
    """B × P × D parts and B × P places → B × P·D, each image's parts in its own order."""
    return parts.gather(1, order[:, :, None].expand_as(parts)).flatten(1)


class InfoMin(MoCo):
    """The loss is the mean of two: of the image, and of its jigsaw, both against the same key and queue. For the
    jigsaw, 3 × 3 patches of the query's view go through the encoder one by one; their features, in random order,
    through a projector of their own.

    The paper has no CIFAR: here MoCo's numbers and views, with the authors' temperature of 0.15. Published for
    ImageNet, and as here: lr 0.03 for a batch of 256, weight decay 0.0001, 200 epochs, a queue of 65536, decay 0.999,
    2048 hidden units, and a policy that leaves too little in common for small images and short runs (`policy` infomin,
    `randaugment` 2: on CIFAR-10, a k-NN accuracy of 44.5 % after 50 epochs where MoCo has 64.4): crops of 20 % of the
    area or more, colour jitter of 0.8, 0.8, 0.8 and 0.2, blur of half the views, RandAugment (2 operations, each done
    with probability ½, of strength 10 ± 0.5 out of 10), then grey of a fifth. Different here: the patches are of the
    query's view, not of a crop of their own without changes of colour, and fill their cells, without random offsets;
    features of patches are not projected one by one before they are joined. Patches must be of a size that the encoder
    takes, which no ViT does.
    """

    name = "infomin"
    updates: Tensor

    def __init__(
        self,
        encoder: nn.Module,
        features: int,
        hidden: int = 512,
        projection: int = 128,
        temperature: float = 0.15,
        tau: float = 0.99,
        queue: int = 4096,
        jigsaw: int = 3,
        seed: int = 0,
    ) -> None:
        super().__init__(encoder, features, hidden, projection, temperature, tau, queue)
        self.jigsaw_projector = mlp(jigsaw**2 * features, hidden, projection, norm="none")
        self.jigsaw, self.seed = jigsaw, seed
        self.register_buffer("updates", torch.zeros((), dtype=torch.long))  # so that each has other orders

    def sides(self, views: Sequence[int]) -> set[int]:
        return {*views, views[0] // self.jigsaw}

    def queries_of(self, batch: Batch) -> tuple[Tensor, ...]:
        """Of the jigsaw first: BatchNorm's running statistics then lean to whole images, which evaluation shows."""
        pieces = self.jigsaw**2
        features = self.encoder(patches_of(batch.views[0], self.jigsaw)).unflatten(0, (-1, pieces))
        drawn = uniforms(pieces, batch.sample, seed=self.seed, epoch=self.updates, stream=JIGSAW)
        self.updates.add_(1)
        puzzle = self.jigsaw_projector(shuffled(features, drawn.argsort(dim=1)))
        return *super().queries_of(batch), puzzle
