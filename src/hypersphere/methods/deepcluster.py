"""DeepCluster-v2 (Caron et al. 2018; 2020, appendix): classify images by the clusters of their own projections."""

from typing import Any

import torch
from torch import Tensor, nn

from hypersphere.errors import UserError
from hypersphere.methods.base import Batch, Features, Method, Step
from hypersphere.methods.options import Count, Few, Positive, Several
from hypersphere.methods.prototypes import cosines
from hypersphere.methods.recipes import SMALL_HEADS, TRANSFORMER
from hypersphere.methods.swav import SWAV
from hypersphere.nn import each_view, mlp
from hypersphere.nn.norm import Norm
from hypersphere.sphere import spherical_kmeans, unit
from hypersphere.util.random_numbers import CLUSTERS, permutation


class DeepCluster(Method):
    """DeepCluster-v2: k-means before each epoch gives the labels for that epoch.

    Spherical k-means clusters the projections of all images several times, from different starts. The centroids C of
    each clustering are fixed prototypes for that epoch. The loss is the cross-entropy of the image's cluster under
    softmax(zᵀC / temperature), the mean over views and clusterings.

    Published for ImageNet, and as here: three times 3000 clusters of 128 dimensions, hidden 2048, temperature 0.1, ten
    iterations of k-means, two crops of 224 pixels (14 % of the area or more) and six of 96 (5 to 14 %), SimCLR's
    changes of colour, LARS with batch 4096 and learning rate 4.8 (0.3 for 256), weight decay 1e-6, 800 epochs with 10
    of warm-up.

    On CIFAR, which the authors do not report: 512 clusters, four small crops, lr 0.6, batch 1024, 300 epochs.

    Different here: the learning rate decays to 0, not to a thousandth. K-means clusters the projections of each image's
    centre by the networks at the start of the epoch, in evaluation mode; the published method keeps those of the last
    epoch's random views. Images in files are therefore read once more.

    In a training loop of your own, call `start_epoch` before each epoch with a function that yields the encoder's
    features of all images in order. The `sample` of a batch are indices in that order.

    Args:
        encoder: Network from images (B, C, H, W) to features (B, `features`).
        features: Width of the encoder's output.
        norm: Normalization in the projector.
        seed: Seed of the clusterings' starts.
        hidden: Hidden units of the projector, and of the predictor if there is one.
        projection: Outputs of the projector, and of the predictor if there is one.
        prototypes: Number of clusters.
        temperature: Temperature of the softmax.
        times: Clusterings in each epoch.
        iterations: Iterations of k-means.

    Example:
        >>> encoder, images = torch.nn.Flatten(), torch.rand(6, 3, 2, 2)
        >>> method = hs.methods.DeepCluster(encoder, features=12, hidden=8, projection=4, prototypes=5)
        >>> method.start_epoch(lambda: [encoder(images)])
        >>> views = (images, images.flip(3))
        >>> sorted(method(hs.methods.Batch(views, torch.arange(6), None)).terms)
        ['deepcluster']
    """

    recipes = {
        "default": {"small_crops": 4, "energy_layers": ("projector",), "lr": 0.6},
        "digits": {**SMALL_HEADS, "prototypes": 64, "small_crops": 0},
        "imagenet": SWAV,
        "transformer": TRANSFORMER,
    }
    takes_small_crops = True
    growing = ("labels",)
    centroids: Tensor
    labels: Tensor
    epoch: Tensor

    def __init__(
        self,
        encoder: nn.Module,
        features: int,
        hidden: Count = 2048,
        projection: Count = 128,
        norm: Norm = "batch",
        prototypes: Several = 512,
        temperature: Positive = 0.1,
        seed: int = 0,
        times: Few = 3,
        iterations: Count = 10,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.projector = mlp(features, hidden, projection, norm)
        self.temperature, self.seed, self.iterations = temperature, seed, iterations
        self.register_buffer("centroids", unit(torch.randn(times * prototypes, projection)).view(times, prototypes, -1))
        self.register_buffer("labels", torch.zeros(times, 0, dtype=torch.long))  # (times, images)
        self.register_buffer("epoch", torch.zeros((), dtype=torch.long))

    @classmethod
    def options_for(cls, images: int) -> dict[str, Any]:
        return {"prototypes": min(DeepCluster.Options.prototypes, max(2, images // 8))}

    def forward(self, batch: Batch) -> Step:
        z = each_view(nn.Sequential(self.encoder, self.projector), batch.views)
        losses = [
            nn.functional.cross_entropy(cosines(each, centroids) / self.temperature, label)
            for each in z
            for centroids, label in zip(self.centroids, self._labels_of(batch.sample), strict=True)
        ]
        return self.step("deepcluster", torch.stack(losses).mean(), *z)

    def check(self, images: int) -> None:
        if self.centroids.shape[1] > images:
            raise UserError(
                f"`prototypes` must be at most the number of images, {images}, got {self.centroids.shape[1]}"
            )

    def _labels_of(self, sample: Tensor) -> Tensor:
        """Return labels of shape (times, B)."""
        if self.labels.shape[1] == 0:
            raise UserError("DeepCluster has no clusters yet: call start_epoch(features) before each epoch")
        return self.labels[:, sample]

    def start_trial(self, images: int) -> None:
        """Label images by their numbers."""
        labels = torch.arange(images, device=self.labels.device) % self.centroids.shape[1]
        self.labels = labels.repeat(len(self.labels), 1)

    @torch.no_grad()
    def start_epoch(self, features: Features | None) -> None:
        if features is None:
            return
        points = self._projected(features)
        self.check(len(points))
        clusters = self.centroids.shape[1]
        if self.labels.shape[1] != len(points):
            self.labels = self.labels.new_zeros(len(self.labels), len(points))
        for time, (centroids, labels) in enumerate(zip(self.centroids, self.labels, strict=True)):
            number = int(self.epoch) * len(self.centroids) + time
            order = permutation(len(points), seed=self.seed, epoch=number, stream=CLUSTERS, device=points.device)
            found = spherical_kmeans(points, points[order[:clusters]], self.iterations)
            centroids.copy_(found[0])  # in place, because a CUDA graph reads it
            labels.copy_(found[1])
        self.epoch += 1

    def _projected(self, features: Features) -> Tensor:
        training = self.projector.training
        self.projector.eval()
        projections = torch.cat([unit(self.projector(part)) for part in features()])
        self.projector.train(training)
        return projections
