"""DINO (Caron et al. 2021): match the distribution over prototypes that a moving-average teacher gives another view."""

from typing import Annotated

import torch
from torch import Tensor, nn

from hypersphere.losses import dino_loss
from hypersphere.losses.dino import move_centre
from hypersphere.methods.base import Batch, Method, Step
from hypersphere.methods.options import Count, Positive, Several, Share
from hypersphere.methods.prototypes import Prototypes
from hypersphere.methods.recipes import MULTI_CROP, SMALL_HEADS
from hypersphere.nn import deep_mlp, each_view, ema_update, make_target
from hypersphere.nn.norm import Norm
from hypersphere.optim import rising
from hypersphere.util.option_fields import Limits

COLD = 0.04  # the teacher's temperature at the start of its warm-up


class DINO(Method):
    """DINO: the teacher sees the two large views, the student sees all views.

    Each view of the student predicts the teacher's other views (eq. 3). The teacher's scores are centred by a moving
    average of their mean (eq. 4), and sharpened by a lower temperature, so that neither one prototype nor a uniform
    distribution wins.

    Published for a ResNet-50 on ImageNet, and as here: 65,536 prototypes of 256 dimensions, hidden 2048, τ rising from
    0.996 to 1, temperatures 0.1 of the student and 0.04 of the teacher, the centre's momentum 0.9, two crops of 224
    pixels (14 % of the area or more) and eight of 96 (5 to 14 %), BYOL's changes of colour, SGD of lr 0.03 and weight
    decay 1e-4, batch 512, 100 epochs with 10 of warm-up, and the last layer frozen in the first epoch.

    Published for a ViT, and as here if the encoder is a transformer: AdamW of lr 5e-4, weight decay rising from 0.04 to
    0.4 (`weight_decay_end`), the norm of each weight's gradient clipped at 3 (`clip`), crops of 40 % of the area or
    more and of 5 to 40 %. For longer runs, the authors' teacher has a temperature that rises to 0.07 in 30 epochs
    (`teacher_temperature`, `teacher_warmup`).

    On CIFAR, which the authors do not report: 4096 prototypes, four small crops, LARS of lr 0.3, 300 epochs.

    Different here: the head's three layers have normalization and ReLU in between, not GELU alone. A ResNet's gradients
    are not clipped, and ViTs have no stochastic depth. The teacher's temperature rises step by step, not epoch by
    epoch. The learning rate decays to 0, not to 1e-6. Scores are cosines, which is the last layer with normalized
    weights of gain 1 on normalized inputs.

    Args:
        encoder: Network from images (B, C, H, W) to features (B, `features`).
        features: Width of the encoder's output.
        norm: Normalization in the projector.
        epochs: Epochs of the run; the prototypes are frozen in the first of several.
        hidden: Hidden units of the projector, and of the predictor if there is one.
        projection: Outputs of the projector, and of the predictor if there is one.
        prototypes: Number of prototypes.
        temperature: Temperature of the student's softmax.
        tau: Decay of the teacher's moving average at the start; it rises to 1.
        teacher_temperature: Temperature of the teacher's softmax.
        teacher_warmup: Epochs in which the teacher's temperature rises from 0.04.
        centre_momentum: Decay of the moving average of the teacher's scores.

    Example:
        >>> method = hs.methods.DINO(torch.nn.Flatten(), features=12, hidden=8, projection=4, prototypes=5)
        >>> views = (torch.rand(6, 3, 2, 2), torch.rand(6, 3, 2, 2))
        >>> sorted(method(hs.methods.Batch(views, torch.arange(6), None)).terms)
        ['dino']
    """

    recipes = {
        "default": {
            "small_crops": 4,
            "energy_layers": ("projector", "prototypes"),
            "lr": 0.3,
            "weight_decay": 1e-4,
        },
        "digits": {**SMALL_HEADS, "prototypes": 256, "small_crops": 0, "tau": 0.99},
        "imagenet": {
            **MULTI_CROP,
            "small_crops": 8,
            "epochs": 100,
            "batch": 512,
            "optimizer": "sgd",
            "lr": 0.03,
            "prototypes": 65536,
        },
        "transformer": {
            "optimizer": "adamw",
            "lr": 5e-4,
            "weight_decay": 0.04,
            "weight_decay_end": 0.4,
            "clip": 3.0,
            "crop_min": 0.4,
            "small_area": (0.05, 0.4),
        },
    }
    takes_small_crops = True
    centre: Tensor
    teacher_temperature: Tensor  # in this step

    def __init__(
        self,
        encoder: nn.Module,
        features: int,
        hidden: Count = 2048,
        projection: Count = 256,
        norm: Norm = "batch",
        prototypes: Several = 4096,
        temperature: Positive = 0.1,
        tau: Share = 0.996,
        epochs: int = 300,
        teacher_temperature: Positive = 0.04,
        teacher_warmup: Annotated[int, Limits(least=0)] = 0,
        centre_momentum: Share = 0.9,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.projector = deep_mlp(features, hidden, projection, 3, norm)
        self.prototypes = Prototypes(projection, prototypes, epochs)
        self.target = make_target(nn.Sequential(self.encoder, self.projector, self.prototypes))
        self.temperature, self.tau, self.centre_momentum = temperature, tau, centre_momentum
        self.warm, self.warmup = teacher_temperature, teacher_warmup / epochs
        self.register_buffer("centre", torch.zeros(prototypes))
        self.register_buffer("teacher_temperature", torch.tensor(teacher_temperature), persistent=False)

    def forward(self, batch: Batch) -> Step:
        z = each_view(nn.Sequential(self.encoder, self.projector), batch.views)
        scores = [self.prototypes(each) for each in z]
        with torch.no_grad():
            teacher = each_view(self.target, batch.views[:2])
        loss = dino_loss(scores, teacher, self.centre, self.temperature, self.teacher_temperature)
        move_centre(self.centre, teacher, self.centre_momentum)
        return self.step("dino", loss, *z)

    def before_step(self, progress: float | Tensor) -> None:
        self.prototypes.before_step(progress)
        if self.warmup:
            share = torch.as_tensor(progress / self.warmup).clamp(max=1)
            self.teacher_temperature.copy_(COLD + (self.warm - COLD) * share)

    def after_step(self, progress: float | Tensor) -> None:
        self.prototypes.normalize()
        online = nn.Sequential(self.encoder, self.projector, self.prototypes)
        ema_update(self.target, online, rising(self.tau, progress))
