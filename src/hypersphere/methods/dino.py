"""DINO (Caron et al. 2021): match the distribution over prototypes that a moving-average teacher gives another view."""

import torch
from torch import Tensor, nn

from hypersphere.distributed.collectives import all_mean
from hypersphere.methods.base import Batch, Method, Step
from hypersphere.methods.prototypes import Prototypes, swapped
from hypersphere.nn import deep_mlp, each_view, follow, target_of
from hypersphere.nn.norm import Norm
from hypersphere.optim import rising

COLD = 0.04  # the teacher's temperature at the start, where it rises


class DINO(Method):
    """The teacher sees the two large views, the student all; each student view predicts the teacher's other views
    (eq. 3). The teacher's scores are centred, by a moving average of their mean (eq. 4), and sharpened, by a lower
    temperature: neither one prototype nor all of them equally can win.

    Published for a ResNet-50 on ImageNet, and as here: 65,536 prototypes of 256 dimensions, hidden 2048, τ 0.996 rising
    to 1, temperatures 0.1 of the student and 0.04 of the teacher, centre's momentum 0.9, two crops of 224 pixels (14 %
    of the area or more) and eight of 96 (5 to 14 %), BYOL's changes of colour, SGD of lr 0.03 and weight decay 1e-4,
    batch 512, 100 epochs with 10 of warm-up, the last layer frozen in the first. For a ViT its authors have AdamW of lr
    5e-4, weight decay rising from 0.04 to 0.4 (`weight_decay_end`), crops of 40 % of the area or more and of 5 to 40 %,
    and for longer runs a teacher's temperature that rises to 0.07 in 30 epochs (`teacher_temperature`,
    `teacher_warmup`). On CIFAR, which they do not have: 4096 prototypes, four small crops, LARS of lr 0.3, 300 epochs.

    Different here: the head's three layers have normalization and ReLU in between, not GELU alone; gradients are not
    clipped (published: the norm of each weight's at 3); the teacher's temperature rises update by update, not epoch by
    epoch; the learning rate falls to 0, not to 1e-6. Scores are cosines, which is the last layer with normalized
    weights of gain 1 on normalized inputs.
    """

    takes_small_crops = True
    centre: Tensor
    teacher_temperature: Tensor  # of this update

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
        teacher_warmup: int = 0,
        centre_momentum: float = 0.9,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.projector = deep_mlp(features, hidden, projection, 3, norm)
        self.prototypes = Prototypes(projection, prototypes, epochs)
        self.target = target_of(nn.Sequential(self.encoder, self.projector, self.prototypes))
        self.temperature, self.tau, self.centre_momentum = temperature, tau, centre_momentum
        self.warm, self.warmup = teacher_temperature, teacher_warmup / epochs
        self.register_buffer("centre", torch.zeros(prototypes))
        self.register_buffer("teacher_temperature", torch.tensor(teacher_temperature), persistent=False)

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

    def before_step(self, progress: float | Tensor) -> None:
        self.prototypes.before_step(progress)
        if self.warmup:
            share = torch.as_tensor(progress / self.warmup).clamp(max=1)
            self.teacher_temperature.copy_(COLD + (self.warm - COLD) * share)

    def after_step(self, progress: float | Tensor) -> None:
        self.prototypes.normalize()
        online = nn.Sequential(self.encoder, self.projector, self.prototypes)
        follow(self.target, online, rising(self.tau, progress))
