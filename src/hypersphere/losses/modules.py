"""The losses without state as modules, whose options are given once."""

from torch import Tensor, nn

from hypersphere.losses.pairs import barlow_loss, dcl, negative_cosine, vicreg_loss
from hypersphere.sphere import (
    alignment,
    byol_loss,
    hyperspherical_energy,
    info_nce,
    koleo,
    nt_xent,
    spherical_mmd,
    uniformity,
    variance_covariance,
)
from hypersphere.sphere.measures import Metric


class BYOLLoss(nn.Module):
    """`byol_loss` as a module: of predictions and targets.

    Example:
        >>> hs.losses.BYOLLoss()(torch.eye(2), -torch.eye(2)).item()
        4.0
    """

    def forward(self, p: Tensor, z: Tensor) -> Tensor:
        return byol_loss(p, z)


class NegativeCosineLoss(nn.Module):
    """`negative_cosine` as a module: of predictions and projections.

    Example:
        >>> hs.losses.NegativeCosineLoss()(torch.eye(2), torch.eye(2)).item()
        -1.0
    """

    def forward(self, p: Tensor, z: Tensor) -> Tensor:
        return negative_cosine(p, z)


class NTXentLoss(nn.Module):
    """`nt_xent` as a module: of two views.

    Args:
        temperature: Divides the cosines. A tensor or a parameter gets a gradient.

    Example:
        >>> x = torch.eye(4)
        >>> torch.equal(hs.losses.NTXentLoss(0.1)(x, x), hs.nt_xent(x, x, 0.1))
        True
    """

    def __init__(self, temperature: float | Tensor = 0.5) -> None:
        super().__init__()
        self.temperature = temperature

    def forward(self, z1: Tensor, z2: Tensor) -> Tensor:
        return nt_xent(z1, z2, self.temperature)


class InfoNCELoss(nn.Module):
    """`info_nce` as a module: of queries, keys, and optionally more negatives.

    Args:
        temperature: Divides the cosines. A tensor or a parameter gets a gradient.

    Example:
        >>> x = torch.eye(4)
        >>> torch.equal(hs.losses.InfoNCELoss(0.1)(x, x), hs.info_nce(x, x, 0.1))
        True
    """

    def __init__(self, temperature: float | Tensor = 0.5) -> None:
        super().__init__()
        self.temperature = temperature

    def forward(self, query: Tensor, key: Tensor, negatives: Tensor | None = None) -> Tensor:
        return info_nce(query, key, self.temperature, negatives)


class DCLLoss(nn.Module):
    """`dcl` as a module: of two views.

    Args:
        temperature: Divides the cosines. A tensor or a parameter gets a gradient.

    Example:
        >>> x = torch.eye(4)
        >>> torch.equal(hs.losses.DCLLoss(0.5)(x, x), hs.losses.dcl(x, x, 0.5))
        True
    """

    def __init__(self, temperature: float | Tensor = 0.1) -> None:
        super().__init__()
        self.temperature = temperature

    def forward(self, z1: Tensor, z2: Tensor) -> Tensor:
        return dcl(z1, z2, self.temperature)


class BarlowTwinsLoss(nn.Module):
    """`barlow_loss` as a module: of two views.

    Args:
        redundancy: Weight of the correlations between dimensions.

    Example:
        >>> z1, z2 = torch.randn(2, 8, 4)
        >>> torch.equal(hs.losses.BarlowTwinsLoss(0.1)(z1, z2), hs.losses.barlow_loss(z1, z2, 0.1))
        True
    """

    def __init__(self, redundancy: float = 0.005) -> None:
        super().__init__()
        self.redundancy = redundancy

    def forward(self, z1: Tensor, z2: Tensor) -> Tensor:
        return barlow_loss(z1, z2, self.redundancy)


class VICRegLoss(nn.Module):
    """`vicreg_loss` as a module: of two views.

    Args:
        invariance: Weight of the mean squared difference.
        variance: Weight of the variance term.
        covariance: Weight of the covariance term.

    Example:
        >>> z1, z2 = torch.randn(2, 8, 4)
        >>> torch.equal(hs.losses.VICRegLoss()(z1, z2), hs.losses.vicreg_loss(z1, z2))
        True
    """

    def __init__(self, invariance: float = 25.0, variance: float = 25.0, covariance: float = 1.0) -> None:
        super().__init__()
        self.invariance, self.variance, self.covariance = invariance, variance, covariance

    def forward(self, z1: Tensor, z2: Tensor) -> Tensor:
        return vicreg_loss(z1, z2, self.invariance, self.variance, self.covariance)


class VarianceCovarianceLoss(nn.Module):
    """`variance_covariance` as a module: of one view.

    Args:
        variance: Weight of the variance term.
        covariance: Weight of the covariance term.
        gamma: Standard deviation that the variance term asks for in each dimension.

    Example:
        >>> x = torch.randn(8, 4)
        >>> torch.equal(hs.losses.VarianceCovarianceLoss()(x), hs.variance_covariance(x))
        True
    """

    def __init__(self, variance: float = 1.0, covariance: float = 0.04, gamma: float = 1.0) -> None:
        super().__init__()
        self.variance, self.covariance, self.gamma = variance, covariance, gamma

    def forward(self, x: Tensor) -> Tensor:
        return variance_covariance(x, self.variance, self.covariance, self.gamma)


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


class KoLeoLoss(nn.Module):
    """`koleo` as a module: of the features of one view.

    Example:
        >>> round(hs.losses.KoLeoLoss()(torch.eye(4)).item(), 4)
        -0.3466
    """

    def forward(self, x: Tensor) -> Tensor:
        return koleo(x)


class SphericalMMDLoss(nn.Module):
    """`spherical_mmd` as a module: of the features of one view.

    Args:
        t: Scale of the kernel.

    Example:
        >>> round(hs.losses.SphericalMMDLoss()(torch.ones(4, 16)).item(), 2)
        0.97
    """

    def __init__(self, t: float = 2.0) -> None:
        super().__init__()
        self.t = t

    def forward(self, x: Tensor) -> Tensor:
        return spherical_mmd(x, self.t)


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
