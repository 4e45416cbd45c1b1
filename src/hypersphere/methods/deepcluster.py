"""DeepCluster-v2 (Caron et al. 2018; 2020, appendix): classify images by the clusters of their own projections."""

import torch
from torch import Tensor, nn

from hypersphere.errors import UserError
from hypersphere.methods.base import Batch, Features, Method, Step
from hypersphere.methods.prototypes import cosines
from hypersphere.nn import each_view, mlp
from hypersphere.nn.norm import Norm
from hypersphere.sphere import spherical_kmeans, unit
from hypersphere.util.draws import CLUSTERS, permutation


class DeepCluster(Method):
    """Before each epoch, spherical k-means of the projections of all images, several times from different starts. The
    centroids C of each time are fixed prototypes for that epoch: the loss is the cross-entropy of the image's cluster
    under softmax(zᵀC / temperature), the mean over views and times.

    Published for ImageNet, and as here: three times 3000 clusters of 128 dimensions, hidden 2048, temperature 0.1, ten
    iterations of k-means, two crops of 224 pixels (14 % of the area or more) and six of 96 (5 to 14 %), SimCLR's
    changes of colour, LARS with batch 4096 and learning rate 4.8 (0.3 for 256), weight decay 1e-6, 800 epochs with 10
    of warm-up. On CIFAR, which its authors do not have: 512 clusters, four small crops, lr 0.6, batch 1024, 300 epochs.

    Different here: the learning rate falls to 0, not to a thousandth; k-means is of the projections of each image's
    middle by the networks as they are when the epoch begins, in evaluation mode, where the published method keeps those
    of the last epoch's random views; of files, that is one more pass over them.

    In a loop of one's own, call `start_epoch` before each epoch, with a function that goes through the encoder's
    features of all images in order; the batches' `sample` are numbers in that order.
    """

    takes_small_crops = True
    growing = ("labels",)
    centroids: Tensor
    labels: Tensor
    epoch: Tensor

    def __init__(
        self,
        encoder: nn.Module,
        features: int,
        hidden: int = 2048,
        projection: int = 128,
        norm: Norm = "batch",
        prototypes: int = 512,
        temperature: float = 0.1,
        seed: int = 0,
        times: int = 3,
        iterations: int = 10,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.projector = mlp(features, hidden, projection, norm)
        self.temperature, self.seed, self.iterations = temperature, seed, iterations
        self.register_buffer("centroids", unit(torch.randn(times * prototypes, projection)).view(times, prototypes, -1))
        self.register_buffer("labels", torch.zeros(times, 0, dtype=torch.long))  # times × images
        self.register_buffer("epoch", torch.zeros((), dtype=torch.long))

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
            raise UserError(f"`prototypes` {self.centroids.shape[1]} is more than the {images} images to be clustered")

    def _labels_of(self, sample: Tensor) -> Tensor:
        """Times × B; before the first epoch nothing is known but that images differ."""
        if self.labels.shape[1] == 0:
            return (sample % self.centroids.shape[1]).expand(len(self.centroids), -1)
        return self.labels[:, sample]

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
            centroids.copy_(found[0])  # where a recorded update reads them
            labels.copy_(found[1])
        self.epoch += 1

    def _projected(self, features: Features) -> Tensor:
        training = self.projector.training
        self.projector.eval()
        projections = torch.cat([unit(self.projector(part)) for part in features()])
        self.projector.train(training)
        return projections
