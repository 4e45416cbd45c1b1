"""torchvision's ResNets with the same weights, but BatchNorm, residual and ReLU computed in one pass."""

from collections.abc import Callable

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


def first_layer(conv: nn.Conv2d, norm: nn.Module, x: Tensor) -> Tensor:
    """ReLU(norm(conv(x))); for small images by a kernel that also returns the sums for BatchNorm."""
    shape = (conv.stride, conv.padding, conv.dilation, conv.groups, conv.padding_mode)
    hooked = conv._forward_hooks or conv._forward_pre_hooks or is_parametrized(conv)
    plain = type(conv) is nn.Conv2d and shape == ((1, 1), (1, 1), (1, 1), 1, "zeros") and not hooked
    if not (plain and conv.bias is None and isinstance(norm, PerViewBatchNorm) and norm._is_plain() and usable(x)):
        return norm_act(norm, conv(x))
    from hypersphere.kernels import stem

    if not stem.takes(x, conv.weight):
        return norm_act(norm, conv(x))
    first, views = norm.running_mean, norm.views if norm.training else 1
    y, sums = stem.convolve(x, conv.weight, first, views)  # type: ignore[arg-type]
    return norm(y, relu=True, sums=sums)


class ResNet(resnet.ResNet):
    def _forward_impl(self, x: Tensor) -> Tensor:
        x = self.maxpool(first_layer(self.conv1, self.bn1, x))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(self.avgpool(x).flatten(1))


LAYERS: dict[str, tuple[type[nn.Module], list[int]]] = {
    "resnet18": (BasicBlock, [2, 2, 2, 2]),
    "resnet50": (Bottleneck, [3, 4, 6, 3]),
}


def build_resnet(name: str, norm: Callable[[int], nn.Module]) -> resnet.ResNet:
    block, layers = LAYERS[name]
    return ResNet(block, layers, norm_layer=norm)
