"""Weights of an encoder from a file of unknown origin: read without running any code in it."""

import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized

from hypersphere.errors import UserError, first_line

CARD, WEIGHTS = "card.json", "encoder.safetensors"  # in a folder that `export` wrote

# where others keep the weights, and what they put in front of an encoder's names
_INSIDE = ("state_dict", "model", "model_state_dict", "method", "encoder")
_PREFIXES = ("module.", "model.", "encoder.", "backbone.", "online_encoder.", "encoder_q.", "base_encoder.")


class OtherShape(UserError):
    """The first tensor whose shape is not the encoder's."""

    def __init__(self, source: str, name: str, there: Tensor, here: Tensor) -> None:
        self.name, self.there, self.here = name, tuple(there.shape), tuple(here.shape)
        super().__init__(f"{source} is of another architecture: {name} is {self.there} there, {self.here} here")


def load_weights(encoder: nn.Module, path: Path) -> None:
    put_weights(encoder, read_weights(path), str(path))


def put_weights(encoder: nn.Module, found: dict[str, Tensor], source: str) -> list[str]:
    """Into the encoder, whatever stands in front of the names; returns those that it has not, as of what classifies."""
    found = _fitting(found, encoder)
    plain = {name: place for name, place in _parametrized(encoder).items() if name in found}
    made = tuple(f"{name[: -len(of)]}parametrizations.{of}." for name, (_, of) in plain.items())
    ours = {name: tensor for name, tensor in encoder.state_dict().items() if not name.startswith(made)}
    needed = [name for name in ours if not name.endswith("num_batches_tracked")]
    missing = [name for name in needed if name not in found]
    if missing:
        raise UserError(f"{source} is of another architecture: {len(missing)} of {len(needed)} tensors are not there, "
                        f"such as {missing[0]}")  # fmt: skip
    here = {name: ours[name] for name in needed} | {name: getattr(*place) for name, place in plain.items()}
    for name, tensor in here.items():
        if found[name].shape != tensor.shape:
            raise OtherShape(source, name, found[name], tensor)
    encoder.load_state_dict({name: found[name] for name in ours if name in found}, strict=False)
    for name, place in plain.items():
        _put_plain(*place, found[name], source)
    return [name for name in found if name not in ours and name not in plain]


def _parametrized(encoder: nn.Module) -> dict[str, tuple[nn.Module, str]]:
    """By the name that it would have as a plain tensor, as in an export."""
    return {
        f"{name}.{of}" if name else of: (module, of)
        for name, module in encoder.named_modules(remove_duplicate=False)
        if is_parametrized(module)
        for of in module.parametrizations
    }


def _put_plain(module: nn.Module, name: str, tensor: Tensor, source: str) -> None:
    """What a parametrization makes it from; one that counts on what it saw before, as a spectral norm does, sees it."""
    kinds = " and ".join(type(one).__name__.strip("_") for one in module.parametrizations[name])  # type: ignore[index]
    learning = module.training
    try:
        with torch.no_grad():
            setattr(module, name, tensor.to(getattr(module, name)))
            module.train()
            made = [getattr(module, name) for _ in range(30)][-1]
    except (RuntimeError, ValueError, AssertionError, AttributeError, TypeError) as error:
        raise UserError(f"{source} has plain weights, which {kinds} cannot be set to ({first_line(error)})") from None
    finally:
        module.train(learning)
    if not (made - tensor.to(made)).norm() <= 0.1 * made.norm():  # nor where it is no number
        raise UserError(f"{source} has plain weights, which {kinds} cannot give")


def read_weights(path: Path) -> dict[str, Tensor]:
    if path.stat().st_size == 0:
        raise UserError(f"{path} is empty")
    if path.suffix == ".safetensors":
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        try:
            return load_file(path)
        except SafetensorError as error:
            raise UserError(f"{path} cannot be read as .safetensors ({error})") from None
    try:
        with warnings.catch_warnings(action="ignore"):  # of odd pickles, which are refused anyway
            saved = torch.load(path, map_location="cpu", weights_only=True)
    except Exception:
        raise UserError(
            f"{path} is damaged, or holds more than tensors, and is not unpickled since that could run code in it: "
            "save its state_dict, or as .safetensors"
        ) from None
    return _tensors(saved, path)


def _tensors(saved: Any, path: Path) -> dict[str, Tensor]:
    """Those of the innermost of the known places."""
    while isinstance(saved, dict) and (inside := [n for n in _INSIDE if isinstance(saved.get(n), dict)]):
        saved = saved[inside[0]]
    if isinstance(saved, dict) and (found := {name: x for name, x in saved.items() if isinstance(x, Tensor)}):
        return found
    raise UserError(f"{path} holds no weights by name")


def _fitting(found: dict[str, Tensor], encoder: nn.Module) -> dict[str, Tensor]:
    """With the prefix taken off that makes most names those of the encoder."""
    ours = encoder.state_dict().keys() | _parametrized(encoder).keys()
    prefixes = {""}
    for name in found:
        for one in _PREFIXES:
            if name.startswith(one):
                prefixes |= {one, *(one + two for two in _PREFIXES if name.startswith(one + two))}
    stripped = [{n.removeprefix(p): x for n, x in found.items() if n.startswith(p)} for p in sorted(prefixes)]
    return max(stripped, key=lambda names: len(names.keys() & ours))
