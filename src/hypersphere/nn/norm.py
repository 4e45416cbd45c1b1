"""Batch, group and no normalization (tab:bn), and BatchNorm with separate statistics for each view."""

import contextlib
from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Any, Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm
from torch.nn.utils.parametrize import register_parametrization

from hypersphere.distributed.collectives import rank, world_size
from hypersphere.kernels import usable

Norm = Literal["batch", "group", "none"]  # group: GroupNorm with standardized weights


class PerViewBatchNorm(_BatchNorm):
    """BatchNorm with separate statistics for each of several concatenated views, synchronized over processes.

    If there is a kernel for it, ReLU(norm(x) + residual) is computed in the same pass over memory.
    """

    views = 1
    group: Tensor | None = None  # of each image, if groups are not the views
    alone = False  # do not synchronize, because all processes have the same batch

    def forward(
        self,
        x: Tensor,
        residual: Tensor | None = None,
        relu: bool = False,
        *,
        residual_norm: "PerViewBatchNorm | None" = None,
        sums: Any = None,
    ) -> Tensor:
        """`residual_norm` applies to the residual before adding; `sums` over x come from the kernel that computed x."""
        self._check_input_dim(x)
        kernel = self._kernel_supports(x, residual, relu)
        if kernel and residual_norm is not None and residual_norm._is_fused_with(self, residual):
            return self._fused(x, residual, relu, residual_norm, sums)
        if residual_norm is not None:
            residual = residual_norm(residual)
        if kernel:
            return self._fused(x, residual, relu, None, sums)
        if self._is_synchronized():
            return _add_and_relu(self._synchronized(x), residual, relu)
        views = self.views if self.training else 1
        out = torch.cat([super(PerViewBatchNorm, self).forward(view) for view in x.chunk(views)]) if views > 1 else None
        return _add_and_relu(super().forward(x) if out is None else out, residual, relu)

    def pooled(self, x: Tensor, sums: Any = None) -> Tensor:
        """ReLU(norm(x)), max-pooled with windows of 3 × 3 and stride 2; in one pass if there is a kernel for it."""
        if x.ndim != 4 or not self._kernel_supports(x, None, True):
            return max_pool2d(self(x, relu=True, sums=sums))
        from hypersphere.kernels import pool

        layer = self._kernel_arguments(relu=True, fork=self.training and x.requires_grad)
        if not self.training:
            return pool.normalize_and_pool(x, self._running_statistics(layer), layer)
        return _with_second_use(pool.batch_norm_and_pool(x, layer, sums), layer)

    def _kernel_supports(self, x: Tensor | None, residual: Tensor | None, relu: bool) -> bool:
        if x is None or not usable(x) or not self._is_plain():
            return False
        from hypersphere.kernels.norm import takes

        whole = residual is None or (relu and takes(residual) and _alike(residual, x))
        differentiable = self.training or not torch.is_grad_enabled()
        return whole and differentiable and takes(x) and x.numel() // x.shape[1] // self.views > 1

    def _is_plain(self) -> bool:
        """Whether it is BatchNorm with default options, in single precision, not synchronized."""
        tracked = self.track_running_stats and self.running_mean is not None and self.momentum is not None
        plain = self.affine and tracked and not self._is_synchronized()
        return plain and self.weight.dtype == self.running_mean.dtype == torch.float32  # type: ignore[union-attr]

    def _is_synchronized(self) -> bool:
        return self.training and world_size() > 1 and not self.alone

    def _synchronized(self, x: Tensor) -> Tensor:
        from hypersphere.nn.synchronized import Synchronized

        group = self.group
        if group is None:
            group = torch.arange(len(x), device=x.device) * self.views // len(x)
        wide = torch.promote_types(x.dtype, torch.float32)
        weight = x.new_ones(x.shape[1], dtype=wide) if self.weight is None else self.weight
        bias = torch.zeros_like(weight) if self.bias is None else self.bias
        member = (group == torch.arange(self.views, device=x.device)[:, None]).to(weight.dtype)
        y, count, mean, variance = Synchronized.apply(x, weight, bias, member, self.eps)
        self._track(mean, variance * count / (count - 1))
        return y

    @torch.no_grad()
    def _track(self, means: Tensor, variances: Tensor) -> None:
        """Update the running statistics with one group after the other."""
        if self.running_mean is None or self.running_var is None or self.num_batches_tracked is None:
            return
        for mean, variance in zip(means, variances, strict=True):
            self.num_batches_tracked.add_(1)
            number = self.num_batches_tracked.to(self.running_mean.dtype)
            share = 1 / number if self.momentum is None else self.momentum
            self.running_mean.lerp_(mean.to(self.running_mean.dtype), share)
            self.running_var.lerp_(variance.to(self.running_var.dtype), share)

    def _is_fused_with(self, main: "PerViewBatchNorm", residual: Tensor | None) -> bool:
        both = self.training and main.training and self.views == main.views
        return both and self._kernel_supports(residual, None, False)

    def _kernel_arguments(self, relu: bool = False, fork: bool = False) -> Any:
        from hypersphere.kernels.norm import Norm

        held: list[Any] = [self.weight, self.bias, self.running_mean, self.running_var, self.num_batches_tracked]
        return Norm._make([*held, self.eps, self.momentum or 0.0, self.views if self.training else 1, relu, fork])

    def _fused(
        self, x: Tensor, residual: Tensor | None, relu: bool, other: "PerViewBatchNorm | None", sums: Any
    ) -> Tensor:
        from hypersphere.kernels import norm

        layer = self._kernel_arguments(relu, fork=self.training and relu and x.requires_grad)
        if not self.training:
            return norm.normalize(x, residual, self._running_statistics(layer), layer)
        beside = None if other is None else other._kernel_arguments()
        return _with_second_use(norm.batch_norm(x, residual, layer, other=beside, sums=sums), layer)

    def _running_statistics(self, layer: Any) -> Any:
        from hypersphere.kernels.norm import Statistics

        return Statistics(layer.running_mean, torch.rsqrt(layer.running_var + self.eps))


class BatchNorm1d(PerViewBatchNorm, nn.BatchNorm1d):
    pass


class BatchNorm2d(PerViewBatchNorm, nn.BatchNorm2d):
    pass


_PER_VIEW: dict[type, type] = {nn.BatchNorm1d: BatchNorm1d, nn.BatchNorm2d: BatchNorm2d}


def separate_view_statistics(network: nn.Module) -> bool:
    """Make every BatchNorm of a network compute separate statistics for each view, in place.

    Args:
        network: The network; its BatchNorm1d and BatchNorm2d layers change their class.

    Returns:
        Whether views are independent now: no other layer mixes the images of a batch or counts batches.

    Example:
        >>> network = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8))
        >>> hs.nn.separate_view_statistics(network)
        True
    """
    for module in network.modules():
        if type(module) in _PER_VIEW:
            module.__class__ = _PER_VIEW[type(module)]
    return all(
        isinstance(m, PerViewBatchNorm) for m in network.modules() if isinstance(m, _BatchNorm) or _counts_batches(m)
    )


def _counts_batches(module: nn.Module) -> bool:
    return isinstance(module, _InstanceNorm) and module.track_running_stats


def skip_synchronization(network: nn.Module) -> nn.Module:
    """Stop synchronizing BatchNorm, because the network's input is the same on all processes.

    Args:
        network: The network, changed in place.

    Returns:
        The same network.

    Example:
        >>> head = hs.nn.skip_synchronization(hs.nn.mlp(8, 16, 4))
    """
    for module in network.modules():
        if isinstance(module, PerViewBatchNorm):
            module.alone = True
    return network


def each_view(network: nn.Module, views: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Run a network on each view, with separate BatchNorm statistics.

    On a GPU, views of the same size run as one batch if the result is the same.

    Args:
        network: The network.
        views: Views of shape (B, C, H, W), or other inputs of the network; sizes may differ.

    Returns:
        The output of the network for each view.

    Example:
        >>> network = torch.nn.Sequential(torch.nn.Flatten(), hs.nn.mlp(64, 32, 8))
        >>> z1, z2 = hs.nn.each_view(network, (torch.randn(4, 1, 8, 8), torch.randn(4, 1, 8, 8)))
        >>> z1.shape
        torch.Size([4, 8])
    """
    if not (views[0].is_cuda and separate_view_statistics(network)):
        return tuple(network(view) for view in views)
    alike = [tuple(group) for _, group in groupby(views, key=lambda view: view.shape)]
    return tuple(out for group in alike for out in together(network, group))


def each_group(network: nn.Module, view: Tensor, groups: int, *, apart: bool = False) -> Tensor:
    """Run a network on a view, with separate BatchNorm statistics for groups of images (as MoCo shuffles them).

    Args:
        network: The network.
        view: A view of shape (B, C, H, W), or another input of the network.
        groups: Number of groups, of the images of all processes.
        apart: Whether a group has every n-th image instead of consecutive ones.

    Returns:
        The output of the network for all images, in their order.

    Example:
        >>> hs.nn.each_group(hs.nn.mlp(16, 32, 8), torch.randn(12, 16), groups=3).shape
        torch.Size([12, 8])
    """
    if world_size() > 1:
        place = rank() * len(view) + torch.arange(len(view), device=view.device)
        group = place % groups if apart else place * groups // (world_size() * len(view))
        with _separate_statistics(network, groups, group):
            return network(view)
    if apart:
        parts = each_view(network, tuple(view[first::groups] for first in range(groups)))
        return torch.stack(parts, dim=1).flatten(0, 1)
    return torch.cat(each_view(network, view.chunk(groups)))


def together(network: nn.Module, views: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    with _separate_statistics(network, len(views)):
        return network(torch.cat(views)).chunk(len(views))


@contextlib.contextmanager
def _separate_statistics(network: nn.Module, views: int, group: Tensor | None = None) -> Iterator[None]:
    norms = [module for module in network.modules() if isinstance(module, PerViewBatchNorm)]
    for module in norms:
        module.views, module.group = views, group
    try:
        yield
    finally:
        for module in norms:
            module.views, module.group = 1, None


def norm_act(
    norm: nn.Module, x: Tensor, residual: Tensor | None = None, residual_norm: nn.Module | None = None
) -> Tensor:
    """ReLU(norm(x) + residual), or ReLU(norm(x) + residual_norm(residual))."""
    if residual is not None and residual_norm is not None and not isinstance(residual_norm, PerViewBatchNorm):
        residual, residual_norm = residual_norm(residual), None
    if isinstance(norm, PerViewBatchNorm):
        return norm(x, residual, relu=True, residual_norm=residual_norm)
    if residual_norm is not None:
        residual = residual_norm(residual)
    return _add_and_relu(norm(x), residual, relu=True)


def max_pool2d(x: Tensor) -> Tensor:
    """The max-pooling after the first layer of ResNets."""
    return F.max_pool2d(x, 3, stride=2, padding=1)


def _with_second_use(found: Any, layer: Any) -> Tensor:
    """A kernel's output, with the one for a second use if there are two."""
    if not layer.fork:
        return found
    y, y.second_use = found
    return y


def second_use(x: Tensor) -> Tensor:
    """x for a second use. A kernel's output has a second tensor for this, so that it adds both gradients itself."""
    return getattr(x, "second_use", x)


def _alike(x: Tensor, y: Tensor) -> bool:
    return x.dtype == y.dtype and x.shape == y.shape


def _add_and_relu(x: Tensor, residual: Tensor | None, relu: bool) -> Tensor:
    x = x if residual is None else x + residual
    return F.relu(x, inplace=True) if relu else x


class NormAct(nn.Module):
    """A normalization followed by ReLU."""

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.norm = norm

    def forward(self, x: Tensor) -> Tensor:
        return norm_act(self.norm, x)


def norm_layer(norm: Norm, channels: int, spatial: bool) -> nn.Module:
    match norm:
        case "batch":
            return BatchNorm2d(channels) if spatial else BatchNorm1d(channels)
        case "group":
            groups = next(g for g in (32, 16, 8, 4, 2, 1) if channels % g == 0)
            return nn.GroupNorm(groups, channels)
        case "none":
            return nn.Identity()
    raise ValueError(f"norm must be one of {', '.join(get_args(Norm))}, got {norm!r}")


def norm2d(norm: Norm) -> Callable[[int], nn.Module]:
    """A `norm_layer` for torchvision's models: channels → layer."""
    return lambda channels: norm_layer(norm, channels, spatial=True)


class Standardize(nn.Module):
    """Weight standardization: each filter has mean 0 and norm 1 (variance 1 / fan-in)."""

    EPS = 1e-5

    def forward(self, weight: Tensor) -> Tensor:
        rows = weight.flatten(1)
        centred = rows - rows.mean(dim=1, keepdim=True)
        return (centred * torch.rsqrt(rows.var(dim=1, keepdim=True) + self.EPS)).view_as(weight) / rows.shape[1] ** 0.5

    def right_inverse(self, weight: Tensor) -> Tensor:
        """Filters c·w that are standardized to w: c² / n = c² var(w) + EPS, with n the fan-in.

        Filters that are not standardized keep their direction.
        """
        rows = weight.flatten(1).double()
        missing = (1 / rows.shape[1] - rows.var(dim=1, keepdim=True)).clamp(min=1e-3 * self.EPS / rows.shape[1])
        return (rows * (self.EPS / missing).sqrt()).to(weight.dtype).view_as(weight)


def standardize_weights(model: nn.Module) -> nn.Module:
    """Standardize every convolution, in place."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            raw = module.weight.detach().clone()
            register_parametrization(module, "weight", Standardize())
            with torch.no_grad():  # keep the raw weight: right_inverse expects a standardized one
                dict(module.named_parameters())["parametrizations.weight.original"].copy_(raw)
    return model
