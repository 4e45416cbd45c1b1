"""torchvision's ResNets with the same weights, but BatchNorm, residual and ReLU computed in one pass."""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized
from torchvision.models import resnet

from hypersphere.kernels import usable
from hypersphere.nn.norm import PerViewBatchNorm, norm_act, second_use


def _added(block: nn.Module, norm: nn.Module, x: Tensor, shortcut: Tensor) -> Tensor:
    """The end of a block: ReLU(norm(x) + shortcut), with the shortcut downsampled if the block does that."""
    if block.downsample is None:
        return norm_act(norm, x, shortcut)
    convolution, its_norm = block.downsample  # type: ignore[misc]
    return norm_act(norm, x, convolution(shortcut), its_norm)


class BasicBlock(resnet.BasicBlock):
    def forward(self, x: Tensor) -> Tensor:
        out = norm_act(self.bn1, self.conv1(x))
        return _added(self, self.bn2, self.conv2(out), second_use(x))


class Bottleneck(resnet.Bottleneck):
    def forward(self, x: Tensor) -> Tensor:
        out = norm_act(self.bn1, self.conv1(x))
        out = norm_act(self.bn2, self.conv2(out))
        return _added(self, self.bn3, self.conv3(out), second_use(x))


def first_layers(conv: nn.Conv2d, norm: nn.Module, pool: nn.Module, x: Tensor) -> Tensor:
    """pool(ReLU(norm(conv(x)))); by kernels if there are some for it."""
    y, sums = _convolved(conv, norm, x) or (conv(x), None)
    if not isinstance(norm, PerViewBatchNorm):
        return pool(norm_act(norm, y))
    if type(pool) is nn.MaxPool2d and _options(pool, POOL) == (3, 2, 1, 1, False) and not _hooked(pool, norm):
        return norm.pooled(y, sums)
    return pool(norm(y, relu=True, sums=sums))


CONVOLUTION = ("stride", "padding", "dilation", "groups", "padding_mode", "bias")
POOL = ("kernel_size", "stride", "padding", "dilation", "ceil_mode")


def _convolved(conv: nn.Conv2d, norm: nn.Module, x: Tensor) -> tuple[Tensor, Any] | None:
    """The first convolution with the sums for the norm after it, if there is a kernel for both."""
    if not (isinstance(norm, PerViewBatchNorm) and norm._is_plain() and usable(x)):
        return None
    if type(conv) is not nn.Conv2d or _hooked(conv) or is_parametrized(conv):
        return None
    from hypersphere.kernels import stem_3x3, stem_7x7

    for size, kernel in ((1, stem_3x3), (2, stem_7x7)):
        padding = 2 * size - 1
        like = ((size, size), (padding, padding), (1, 1), 1, "zeros", None)
        if _options(conv, CONVOLUTION) == like and kernel.takes(x, conv.weight):
            return kernel.convolve(x, conv.weight, norm.running_mean, norm.views if norm.training else 1)
    return None


def _options(module: nn.Module, names: tuple[str, ...]) -> tuple[Any, ...]:
    return tuple(getattr(module, name) for name in names)


def _hooked(*modules: nn.Module) -> bool:
    return any(module._forward_hooks or module._forward_pre_hooks for module in modules)


class ResNet(resnet.ResNet):
    def _forward_impl(self, x: Tensor) -> Tensor:
        x = first_layers(self.conv1, self.bn1, self.maxpool, x)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(self.avgpool(x).flatten(1))


LAYERS: dict[str, tuple[type[nn.Module], list[int]]] = {
    "resnet18": (BasicBlock, [2, 2, 2, 2]),
    "resnet50": (Bottleneck, [3, 4, 6, 3]),
}


def build_resnet(name: str, norm: Callable[[int], nn.Module]) -> resnet.ResNet:
    block, layers = LAYERS[name]
    return ResNet(block, layers, norm_layer=norm)
