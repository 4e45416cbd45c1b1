"""The larger parts of an encoder, and features in what it and they put out."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd


def blocks_of(encoder: nn.Module) -> dict[str, nn.Module]:
    """Its larger parts, by name: the children that are networks themselves, of the encoder or of the part that holds
    nearly all of its weights (the stages of a ResNet, the blocks of a vision transformer)."""
    parts, whole = dict(encoder.named_children()), _size(encoder)
    while main := [
        name for name, part in parts.items() if _size(part) > 0.9 * whole and len(list(part.children())) > 1
    ]:
        parts = {f"{main[0]}.{name}": child for name, child in parts[main[0]].named_children()}
    return {name: part for name, part in parts.items() if _size(part) and any(True for _ in part.children())}


@contextlib.contextmanager
def heard(blocks: Mapping[str, nn.Module], of: Callable[[Tensor], Tensor]) -> Iterator[dict[str, Tensor]]:
    """`of` what each block puts out while the network runs inside, of several tensors the first: taken at once, since
    what comes next may overwrite it."""
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
    """Channels that a block puts out, as its last layer has them."""
    last = [layer for layer in block.modules() if isinstance(layer, nn.Linear | _ConvNd)][-1]
    return last.out_features if isinstance(last, nn.Linear) else last.out_channels


def features_in(output: Any) -> Tensor:
    """N × D of what a network puts out: a tensor; fields as those of Hugging Face; or several, of which the first."""
    if isinstance(output, Tensor):
        return pooled(output.detach().float())
    for name in ("pooler_output", "last_hidden_state"):
        found = output.get(name) if isinstance(output, Mapping) else getattr(output, name, None)
        if found is not None:
            return features_in(found)
    parts = list(output.values()) if isinstance(output, Mapping) else output
    if not isinstance(parts, list | tuple) or not parts:
        raise TypeError(f"it puts out {type(output).__name__}, no features")
    return features_in(parts[0])


def pooled(x: Tensor) -> Tensor:
    """N × C: the mean over places."""
    return places_of(x).mean(1)


def places_of(x: Tensor) -> Tensor:
    """N × places × C of N × C × H × W, of square maps N × H × W × C, of N × tokens × C, or of N × C."""
    if x.ndim == 4 and x.shape[1] == x.shape[2] != x.shape[3]:
        return x.flatten(1, 2)
    if x.ndim > 3:
        return x.flatten(2).transpose(1, 2)
    return x if x.ndim == 3 else x[:, None]
