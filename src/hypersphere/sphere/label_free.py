"""Measures of features from their spectra, without labels: RankMe, alpha-ReQ, LiDAR, Wasserstein uniformity.

All are computed in float64 on the CPU, without gradient. They are NaN if features are not finite, or if there are none.
If all features coincide, ranks are 1, and measures of how features differ are NaN. Measures from neighbours are in
`clid`.
"""

import contextlib
import math

import torch
from torch import Tensor

from hypersphere.sphere.measures import check_points
from hypersphere.sphere.unit import unit

FIRST_RANK, LAST_RANK = 11, 100  # alpha-ReQ fits eigenvalues of these ranks if there are enough


@torch.no_grad()
def rankme(x: Tensor, eps: float = 1e-7) -> Tensor:
    """RankMe: how many directions the features use (Garrido et al., 2023).

    It is exp(-sum p log p) with p = s / sum(s) + eps, where s are the min(N, D) singular values of `x`. Unlike
    `effective_rank`, rows are not normalized. They are not centred either.

    Args:
        x: Features of shape (N, D), any float dtype.
        eps: Added to each share p. Because of it, the value can slightly exceed min(N, D).

    Returns:
        A scalar tensor, about 1 (one direction, or all zero) to min(N, D) (all directions alike).

    Raises:
        TypeError: If `x` is not a tensor.
        ValueError: If `x` is not a floating-point matrix.

    Example:
        >>> round(hs.sphere.rankme(torch.eye(4)).item(), 3)
        4.0
    """
    return _exp_entropy(_singular_values(_wide(x)), eps)


@torch.no_grad()
def alpha_req(x: Tensor) -> Tensor:
    """Alpha-ReQ: how fast the eigenvalues of the features' covariance decay (Agrawal et al., 2022).

    It is the exponent alpha of the power law eigenvalue_j = c * j^-alpha, j = 1, 2, ... being ranks from the largest
    eigenvalue down: a least-squares line through log eigenvalue against log j, with weights 1/j (Stringer et al.,
    2019). Ranks 11 to 100 are fitted if there are 100 positive eigenvalues, else all positive ones. An eigenvalue is
    positive if it is above the rounding error, max(N, D) * 2.2e-16 times the largest.

    Args:
        x: Features of shape (N, D), any float dtype; centred here, not normalized.

    Returns:
        A scalar tensor. 0 if all eigenvalues are alike; larger if fewer directions dominate. NaN if fewer than two
        eigenvalues are positive.

    Raises:
        TypeError: If `x` is not a tensor.
        ValueError: If `x` is not a floating-point matrix.

    Example:
        >>> x = torch.cat([torch.eye(4), -torch.eye(4)])
        >>> abs(round(hs.sphere.alpha_req(x).item(), 3))
        0.0
    """
    wide = _wide(x)
    values = _singular_values(_centred(wide)).square()
    if len(values) == 0 or not bool(values[0] > 0):
        return wide.new_tensor(math.nan)
    values = values[values > values[0] * max(wide.shape) * torch.finfo(torch.float64).eps]
    first, last = (FIRST_RANK, LAST_RANK) if len(values) >= LAST_RANK else (1, len(values))
    rank = torch.arange(first, last + 1, dtype=torch.float64)
    log_rank, log_value, weight = rank.log(), values[first - 1 : last].log(), 1 / rank
    log_rank = log_rank - (weight * log_rank).sum() / weight.sum()
    return -(weight * log_rank * log_value).sum() / (weight * log_rank.square()).sum()  # NaN, 0 / 0, for a single rank


@torch.no_grad()
def wasserstein_uniformity(x: Tensor) -> Tensor:
    """How far the features are from an even spread: a Wasserstein distance (Fang et al., 2024).

    It is the 2-Wasserstein distance between two normal laws: the one with the mean m and the covariance S (divided
    by N) of the unit rows, and N(0, I/D), to which an even spread over the sphere comes close:
    `sqrt(|m|^2 + 1 + tr(S) - 2/sqrt(D) * tr(S^(1/2)))`.

    Unlike `uniformity`, it clearly grows if dimensions are constant.

    Args:
        x: Features of shape (N, D), any float dtype; rows are normalized to unit length. A zero row counts as a point
            at the centre.

    Returns:
        A scalar tensor. 0 is an even spread, and lower is more uniform; sqrt(2) if all features point the same way.

    Raises:
        TypeError: If `x` is not a tensor.
        ValueError: If `x` is not a floating-point matrix.

    Example:
        >>> round(hs.sphere.wasserstein_uniformity(torch.ones(8, 4)).item(), 3)
        1.414
    """
    points = unit(_wide(x))
    mean, singular = points.mean(dim=0), _singular_values(_centred(points)) / math.sqrt(max(1, len(points)))
    squared = mean.square().sum() + 1 + singular.square().sum() - 2 / math.sqrt(points.shape[1]) * singular.sum()
    return squared.clamp(min=0).sqrt()


@torch.no_grad()
def lidar(x: Tensor, delta: float = 1e-4, eps: float = 1e-7) -> Tensor:
    """LiDAR: how many directions tell images apart, compared with views of one image (Thilak et al., 2024).

    It is exp(-sum p log p) with p = l / sum(l) + eps, where l are the D eigenvalues of Sw^(-1/2) Sb Sw^(-1/2). Sb is
    the covariance of the means of the images (divided by n). Sw is the covariance within an image (divided by q),
    averaged over the images, plus delta * I.

    Args:
        x: Features of shape (n, q, D): q augmented views of each of n images. Neither normalized nor centred.
        delta: Added to the diagonal of Sw, above 0. It has the scale of the squared features.
        eps: Added to each share p.

    Returns:
        A scalar tensor, about 1 (all images have one mean, or differ in one direction) to min(n - 1, D).

    Raises:
        ValueError: If `x` does not have three dimensions, is not floating point, or `delta` is not above 0.

    Example:
        >>> images = torch.cat([torch.eye(4), -torch.eye(4)])
        >>> x = images[:, None].repeat(1, 2, 1)  # two equal views of each image
        >>> round(hs.sphere.lidar(x).item(), 3)
        4.0
    """
    if x.ndim != 3:
        raise ValueError(f"x must be images × views × dimensions, got shape {tuple(x.shape)}")
    if not delta > 0:
        raise ValueError(f"delta must be above 0, got {delta}")
    views = _wide(x.flatten(0, 1)).unflatten(0, x.shape[:2])
    if not views.numel():
        return views.new_tensor(math.nan)
    means = views.mean(dim=1)
    within = (views - means[:, None]).flatten(0, 1)
    scatter = within.mT @ within / len(within)
    variance, directions = _eigenvectors(scatter)
    whitened = _centred(means) @ directions / (variance.clamp(min=0) + delta).sqrt()
    values = _singular_values(whitened).square()
    return _exp_entropy(torch.cat([values, values.new_zeros(x.shape[2] - len(values))]), eps)


def _wide(x: Tensor) -> Tensor:
    check_points(x, "x")
    return x.detach().to("cpu", torch.float64)


def _centred(x: Tensor) -> Tensor:
    return x - x.mean(dim=0) if len(x) else x


def _singular_values(x: Tensor) -> Tensor:
    """The min(N, D) singular values, the largest first; NaN if they cannot be computed."""
    with contextlib.suppress(torch.linalg.LinAlgError):  # type: ignore[attr-defined]
        if x.isfinite().all():
            return torch.linalg.svdvals(x)
    return x.new_full((min(x.shape),), math.nan)


def _eigenvectors(x: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues and eigenvectors of a symmetric matrix; NaN if they cannot be computed."""
    with contextlib.suppress(torch.linalg.LinAlgError):  # type: ignore[attr-defined]
        if x.isfinite().all():
            return torch.linalg.eigh(x)
    return x.new_full((len(x),), math.nan), x


def _exp_entropy(values: Tensor, eps: float) -> Tensor:
    if len(values) == 0:
        return values.new_tensor(math.nan)
    share = values / values.sum().clamp(min=torch.finfo(values.dtype).tiny) + eps
    return torch.special.entr(share).sum().exp()
