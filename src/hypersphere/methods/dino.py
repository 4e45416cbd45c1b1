"""DINO (Caron et al. 2021): match the distribution over prototypes that a moving-average teacher gives another view."""

import torch
from torch import Tensor, nn

from hypersphere.collectives import all_mean
from hypersphere.methods.base import Batch, Method, Step
from hypersphere.methods.prototypes import Prototypes, swapped
from hypersphere.nn import deep_mlp, each_view, follow, rising, target_of
from hypersphere.nn.norm import Norm


class DINO(Method):
    """The teacher sees the two large views, the student all; each student view predicts the teacher's other views
    (eq. 3). The teacher's scores are centred, by a moving average of their mean (eq. 4), and sharpened, by a lower
    temperature: neither one prototype nor all of them equally can win.

    As published for ImageNet: 65,536 prototypes of 256 dimensions, hidden 2048, τ 0.996 rising to 1, temperatures 0.1
    of the student and 0.04 of the teacher (rising to 0.07 in 30 epochs), centre's momentum 0.9, two crops of 224 and
    ten of 96 pixels, AdamW with batch 1024, learning rate 5e-4 for 256 and weight decay rising from 0.04 to 0.4,
    gradients clipped at 3, the last layer frozen in the first epoch.

    What differs: the head's three layers have normalization and ReLU in between, not GELU alone; the teacher's
    temperature and the weight decay are constant; gradients are not clipped. Scores are cosines, which is the last
    layer with normalized weights of gain 1 on normalized inputs.
    """

    takes_small_crops = True
    centre: Tensor

    def __init__(
        self,
        encoder: nn.Module,
        features: int,
        hidden: int = 2048,
        projection: int = 256,
        norm: Norm = "batch",
        prototypes: int = 4096,
        temperature: float = 0.1,
        tau: float = 0.996,
        epochs: int = 300,
        teacher_temperature: float = 0.04,
        centre_momentum: float = 0.9,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.projector = deep_mlp(features, hidden, projection, 3, norm)
        self.prototypes = Prototypes(projection, prototypes)
        self.target = target_of(nn.Sequential(self.encoder, self.projector, self.prototypes))
        self.temperature, self.teacher_temperature = temperature, teacher_temperature
        self.tau, self.centre_momentum, self.frozen = tau, centre_momentum, 1 / epochs if epochs > 1 else 0.0
        self.register_buffer("centre", torch.zeros(prototypes))

    def forward(self, batch: Batch) -> Step:
        z = each_view(nn.Sequential(self.encoder, self.projector), batch.views)
        scores = [self.prototypes(each) for each in z]
        return self.step("dino", swapped(self._targets(batch.views[:2]), scores, self.temperature), *z)

    @torch.no_grad()
    def _targets(self, large: tuple[Tensor, ...]) -> list[Tensor]:
        """softmax((scores − centre) / temperature); the centre then moves to the mean of these scores."""
        scores = each_view(self.target, large)
        targets = [((each - self.centre) / self.teacher_temperature).softmax(dim=1) for each in scores]
        self.centre.lerp_(all_mean(torch.cat(scores).mean(dim=0)), 1 - self.centre_momentum)
        return targets

    def after_step(self, progress: Tensor) -> None:
        self.prototypes.release(progress >= self.frozen)
        online = nn.Sequential(self.encoder, self.projector, self.prototypes)
        follow(self.target, online, rising(self.tau, progress))
