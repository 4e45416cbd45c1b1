"""The blocks of an encoder, and features from the output of encoder and blocks."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd


def blocks_of(encoder: nn.Module) -> dict[str, nn.Module]:
    """The blocks of an encoder by name, such as the stages of a ResNet or the blocks of a vision transformer.

    They are the children that have children, of the encoder or of the part that holds over 90 % of its weights.
    """
    parts, whole = dict(encoder.named_children()), _size(encoder)
    while main := [
        name for name, part in parts.items() if _size(part) > 0.9 * whole and len(list(part.children())) > 1
    ]:
        parts = {f"{main[0]}.{name}": child for name, child in parts[main[0]].named_children()}
    return {name: part for name, part in parts.items() if _size(part) and any(True for _ in part.children())}


@contextlib.contextmanager
def heard(blocks: Mapping[str, nn.Module], of: Callable[[Tensor], Tensor]) -> Iterator[dict[str, Tensor]]:
    """Collect `of(output)` of each block while the network runs inside; of several output tensors the first.

    `of` is called immediately, because later layers may overwrite the output in place.
    """
    found: dict[str, Tensor] = {}

    def keep(name: str, block: nn.Module, given: tuple[Tensor, ...], output: Any) -> None:
        output = output[0] if isinstance(output, tuple) else output
        if isinstance(output, Tensor) and output.ndim >= 2:
            found[name] = of(output)

    with contextlib.ExitStack() as hooks:
        for name, block in blocks.items():
            hooks.enter_context(block.register_forward_hook(partial(keep, name)))
        yield found


def _size(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def width_of(block: nn.Module) -> int:
    """Output channels of a block, from its last layer."""
    last = [layer for layer in block.modules() if isinstance(layer, nn.Linear | _ConvNd)][-1]
    return last.out_features if isinstance(last, nn.Linear) else last.out_channels


def features_in(output: Any) -> Tensor:
    """Features N × D of a network's output: a tensor, an output of Hugging Face, or the first of several."""
    if isinstance(output, Tensor):
        return mean_over_positions(output.detach().float())
    for name in ("pooler_output", "last_hidden_state"):
        found = output.get(name) if isinstance(output, Mapping) else getattr(output, name, None)
        if found is not None:
            return features_in(found)
    parts = list(output.values()) if isinstance(output, Mapping) else output
    if not isinstance(parts, list | tuple) or not parts:
        raise TypeError(f"the network returned {type(output).__name__}, not features: return a tensor")
    return features_in(parts[0])


def mean_over_positions(x: Tensor) -> Tensor:
    """Mean over positions, N × C."""
    return to_positions(x).mean(1)


def to_positions(x: Tensor) -> Tensor:
    """N × positions × C, from N × C × H × W, square maps N × H × W × C, N × tokens × C, or N × C."""
    if x.ndim == 4 and x.shape[1] == x.shape[2] != x.shape[3]:
        return x.flatten(1, 2)
    if x.ndim > 3:
        return x.flatten(2).transpose(1, 2)
    return x if x.ndim == 3 else x[:, None]
