"""BYOL (Grill et al. 2020): predict the target network's projection of the other view."""

from torch import Tensor, nn

from hypersphere.losses import byol_loss
from hypersphere.methods.base import Batch, Method, Step
from hypersphere.methods.options import Count, Share
from hypersphere.methods.recipes import SMALL_HEADS, TRANSFORMER
from hypersphere.nn import each_view, ema_update, make_target, mlp, on_side_stream
from hypersphere.nn.norm import Norm
from hypersphere.optim import rising


class BYOL(Method):
    """BYOL, symmetric over the two views. Both networks compute BatchNorm statistics for each view.

    Published for ImageNet: LARS with batch 4096, heads of 4096 and 256, 10 epochs of warm-up. For 100, 300 or 1000
    epochs: learning rate 0.45, 0.3 or 0.2 for 256 images, weight decay 1e-6, 1e-6 or 1.5e-6, τ from 0.99, 0.99 or 0.996
    to 1. Here: the options for 300 epochs, with batch 512.

    On CIFAR-10, which the authors do not report, the options are those of Durrant and Leontidis: lr 1.5, batch 1024, τ
    0.99, 300 epochs. STL-10 has τ 0.996.

    Without a predictor, projections are compared with the target's directly. The paper found that this collapses.

    Args:
        encoder: Network from images (B, C, H, W) to features (B, `features`).
        features: Width of the encoder's output.
        norm: Normalization in the heads.
        hidden: Hidden units of the projector, and of the predictor if there is one.
        projection: Outputs of the projector, and of the predictor if there is one.
        tau: Decay of the target's moving average at the start; it rises to `tau_end`.
        tau_end: Decay of the target's moving average at the end.
        predictor: Whether a predictor follows the projector.

    Example:
        >>> method = hs.methods.BYOL(torch.nn.Flatten(), features=12, hidden=8, projection=4)
        >>> views = (torch.rand(6, 3, 2, 2), torch.rand(6, 3, 2, 2))
        >>> step = method(hs.methods.Batch(views, torch.arange(6), None))
        >>> sorted(step.terms)
        ['byol']
    """

    recipes = {
        "default": {"energy_layers": ("projector", "predictor")},
        "digits": SMALL_HEADS,
        "stl10": {"tau": 0.996},
        "imagenet": {"energy": 1.0, "energy_layers": ("encoder", "projector", "predictor")},  # of BYOL-MHE
        "transformer": TRANSFORMER,
    }

    def __init__(
        self,
        encoder: nn.Module,
        features: int,
        hidden: Count = 4096,
        projection: Count = 256,
        norm: Norm = "batch",
        tau: Share = 0.99,
        tau_end: Share = 1.0,
        predictor: bool = True,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.projector = mlp(features, hidden, projection, norm)
        self.predictor = mlp(projection, hidden, projection, norm) if predictor else nn.Identity()
        self.target = make_target(nn.Sequential(self.encoder, self.projector))
        self.tau, self.tau_end = tau, tau_end

    def forward(self, batch: Batch) -> Step:
        with on_side_stream(lambda: each_view(self.target, batch.views), batch.views[0]) as targets:
            z1, z2 = each_view(nn.Sequential(self.encoder, self.projector), batch.views)
            p1, p2 = each_view(self.predictor, (z1, z2))
        t1, t2 = targets()
        return self.step("byol", byol_loss(p1, t2) + byol_loss(p2, t1), z1, z2)

    def after_step(self, progress: float | Tensor) -> None:
        ema_update(self.target, nn.Sequential(self.encoder, self.projector), rising(self.tau, progress, self.tau_end))
