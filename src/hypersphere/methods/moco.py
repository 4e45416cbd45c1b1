"""MoCo v2 (He et al. 2020, Chen et al. 2020): tell each image's key from a queue of keys of earlier images."""

import torch
from torch import Tensor, nn

from hypersphere.distributed.collectives import gather, world_size
from hypersphere.losses import moco_loss
from hypersphere.losses.moco import enqueue
from hypersphere.methods.base import Batch, Method, Step
from hypersphere.methods.options import Count, Positive, Share
from hypersphere.methods.recipes import SGD, SMALL_HEADS, TRANSFORMER
from hypersphere.nn import each_group, ema_update, make_target, mlp
from hypersphere.sphere import unit

GROUP = 64  # images that share BatchNorm statistics; published: the images of one GPU


MOCO_V2 = {"batch": 256, "weight_decay": 1e-4, "queue": 65536, "tau": 0.999, "hidden": 2048}  # on ImageNet


class MoCo(Method):
    """MoCo v2: the first view is the query, the second the key.

    Published for CIFAR-10, and as here: SGD of lr 0.03 for 256 images and weight decay 0.0005, batch 512, 200 epochs,
    temperature 0.1, a queue of 4096, and keys by a moving average of decay 0.99.

    Published for ImageNet, and as here: lr 0.03, weight decay 0.0001, batch 256, 200 epochs, temperature 0.2, a queue
    of 65536, decay 0.999, 2048 hidden units, and crops of 20 % of the area or more.

    Shuffled BatchNorm works on one GPU, too. Queries have the statistics of groups of 64 neighbours in the batch, keys
    those of groups that take every n-th image, so that few images meet in both. A batch that is not a multiple of 64 is
    one group: its statistics then leak a little about the key to its query, as without shuffling.

    Different here: CIFAR has the projector of two layers, too, and norms and biases have no weight decay.

    Args:
        encoder: Network from images (B, C, H, W) to features (B, `features`).
        features: Width of the encoder's output.
        hidden: Hidden units of the projector, and of the predictor if there is one.
        projection: Outputs of the projector, and of the predictor if there is one.
        temperature: Temperature of the softmax.
        tau: Decay of the moving average that computes keys.
        queue: Keys of earlier images that serve as negatives.

    Example:
        >>> method = hs.methods.MoCo(torch.nn.Flatten(), features=12, hidden=8, projection=4, queue=16)
        >>> views = (torch.rand(6, 3, 2, 2), torch.rand(6, 3, 2, 2))
        >>> sorted(method(hs.methods.Batch(views, torch.arange(6), None)).terms)
        ['moco']
    """

    recipes = {
        "default": {**SGD, "epochs": 200, "energy_layers": ("projector",)},
        "digits": {**SMALL_HEADS, "queue": 512},
        "imagenet": {**MOCO_V2, "temperature": 0.2, "policy": "moco"},
        "transformer": TRANSFORMER,
    }

    name = "moco"
    queue: Tensor

    def __init__(
        self,
        encoder: nn.Module,
        features: int,
        hidden: Count = 512,
        projection: Count = 128,
        temperature: Positive = 0.1,
        tau: Share = 0.99,
        queue: Count = 4096,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.projector = mlp(features, hidden, projection, norm="none")
        self.target = make_target(nn.Sequential(self.encoder, self.projector))
        self.register_buffer("queue", unit(torch.randn(queue, projection)))
        self.temperature, self.tau = temperature, tau

    def forward(self, batch: Batch) -> Step:
        key = self.key_of(batch.views[1])
        queries = self.queries_of(batch)
        losses = [moco_loss(query, key, self.queue, self.temperature) for query in queries]
        enqueue(self.queue, gather(key))
        return self.step(self.name, sum(losses[1:], losses[0]) / len(losses), *queries)

    def queries_of(self, batch: Batch) -> tuple[Tensor, ...]:
        """Return the projections that are compared with the key."""
        view = batch.views[0]
        online = nn.Sequential(self.encoder, self.projector)
        return (each_group(online, view, _groups(view)),)

    @torch.no_grad()
    def key_of(self, view: Tensor) -> Tensor:
        return unit(each_group(self.target, view, _groups(view), apart=True))

    def after_step(self, progress: float | Tensor) -> None:
        ema_update(self.target, nn.Sequential(self.encoder, self.projector), self.tau)


def _groups(view: Tensor) -> int:
    images = len(view) * world_size()
    return images // GROUP if images % GROUP == 0 else 1
