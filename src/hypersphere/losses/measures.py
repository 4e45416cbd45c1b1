"""Uniformity, alignment and hyperspherical energy as modules; the functions are in `sphere.measures`."""

from torch import Tensor, nn

from hypersphere.sphere.measures import Metric, alignment, hyperspherical_energy, uniformity


class UniformityLoss(nn.Module):
    """`uniformity` as a module: of the features of one view.

    Args:
        t: Scale of the Gaussian kernel.

    Example:
        >>> round(hs.losses.UniformityLoss()(torch.eye(4)).item(), 4)
        -4.0
    """

    def __init__(self, t: float | Tensor = 2.0) -> None:
        super().__init__()
        self.t = t

    def forward(self, x: Tensor) -> Tensor:
        return uniformity(x, self.t)


class AlignmentLoss(nn.Module):
    """`alignment` as a module: of two views.

    Args:
        alpha: Power of the distance.

    Example:
        >>> hs.losses.AlignmentLoss()(torch.eye(2), torch.eye(2).flip(0)).item()
        2.0
    """

    def __init__(self, alpha: float = 2.0) -> None:
        super().__init__()
        self.alpha = alpha

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return alignment(x, y, self.alpha)


class EnergyLoss(nn.Module):
    """`hyperspherical_energy` as a module: of features, or of the rows of any matrix.

    `hs.EnergyRegularizer` has the energy of the weights of a model.

    Args:
        s: Power of the inverse distance.
        metric: "euclidean" for the distance of the points, or "geodesic" for their angle.
        half_space: Whether to include the negatives of the rows.

    Example:
        >>> hs.losses.EnergyLoss()(torch.eye(4)).item()
        0.5
    """

    def __init__(self, s: float = 2.0, metric: Metric = "euclidean", half_space: bool = False) -> None:
        super().__init__()
        self.s, self.metric, self.half_space = s, metric, half_space

    def forward(self, x: Tensor) -> Tensor:
        return hyperspherical_energy(x, self.s, self.metric, self.half_space)
