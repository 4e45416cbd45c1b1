"""Weights of an encoder from a file of any origin, read without running code in it."""

import contextlib
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized

from hypersphere.errors import UserError, first_line
from hypersphere.nn.transformers import resampled_positions
from hypersphere.util.console import notify

CARD, WEIGHTS = "card.json", "encoder.safetensors"  # in an exported folder
HUB_WEIGHTS = "model.safetensors"  # in one for the Hugging Face Hub, where others look for this name

# where checkpoints keep weights, and prefixes of an encoder's names
_INSIDE = ("state_dict", "model", "model_state_dict", "method", "encoder")
_PREFIXES = ("module.", "model.", "encoder.", "backbone.", "online_encoder.", "encoder_q.", "base_encoder.")


class ShapeMismatch(UserError):
    """A tensor in the file has another shape than in the encoder."""

    def __init__(self, source: str, name: str, there: Tensor, here: Tensor) -> None:
        self.name, self.there, self.here = name, tuple(there.shape), tuple(here.shape)
        super().__init__(
            f"{source} is of another architecture: {name} has shape {self.there}, but {self.here} in this encoder"
        )


def exported_weights(folder: Path) -> Path:
    """The file of weights in an exported folder."""
    return folder / (HUB_WEIGHTS if (folder / HUB_WEIGHTS).is_file() else WEIGHTS)


def load_weights(encoder: nn.Module, path: Path) -> None:
    load_tensors(encoder, read_weights(path), str(path))


def load_tensors(encoder: nn.Module, found: dict[str, Tensor], source: str) -> list[str]:
    """Load tensors into the encoder, whatever the prefix of their names; return names that it does not have."""
    found = _fitting(found, encoder)
    plain = {name: place for name, place in _parametrized(encoder).items() if name in found}
    made = tuple(f"{name[: -len(of)]}parametrizations.{of}." for name, (_, of) in plain.items())
    ours = {name: tensor for name, tensor in encoder.state_dict().items() if not name.startswith(made)}
    needed = [name for name in ours if not name.endswith("num_batches_tracked")]
    missing = [name for name in needed if name not in found]
    if missing:
        count = f"{len(missing)} of {len(needed)} tensors"
        raise UserError(f"{source} is of another architecture: {count} are missing, such as {missing[0]}")
    here = {name: ours[name] for name in needed} | {name: getattr(*place) for name, place in plain.items()}
    found |= _resampled(found, here, source)
    for name, tensor in here.items():
        if found[name].shape != tensor.shape:
            raise ShapeMismatch(source, name, found[name], tensor)
    encoder.load_state_dict({name: found[name] for name in ours if name in found}, strict=False)
    for name, place in plain.items():
        _put_plain(*place, found[name], source)
    return [name for name in found if name not in ours and name not in plain]


def _resampled(found: dict[str, Tensor], here: dict[str, Tensor], source: str) -> dict[str, Tensor]:
    """The position embeddings that are for other input sizes, interpolated for those of the encoder."""
    resampled = {}
    for name, tensor in here.items():
        there = found[name]
        same_width = there.ndim == tensor.ndim > 1 and there.shape[-1] == tensor.shape[-1]
        if "pos" in name and there.shape != tensor.shape and same_width and there.is_floating_point():
            with contextlib.suppress(ValueError):
                resampled[name] = resampled_positions(there, tensor.shape[-2])
                notify(f"{source}: interpolated {name} from {there.shape[-2]} to {tensor.shape[-2]} positions")
    return resampled


def _parametrized(encoder: nn.Module) -> dict[str, tuple[nn.Module, str]]:
    """Modules and attributes of parametrized weights, by the name that the plain tensor would have."""
    return {
        f"{name}.{of}" if name else of: (module, of)
        for name, module in encoder.named_modules(remove_duplicate=False)
        if is_parametrized(module)
        for of in module.parametrizations
    }


def _put_plain(module: nn.Module, name: str, tensor: Tensor, source: str) -> None:
    """Set a parametrized weight. Parametrizations with state, such as spectral norm, are run until they converge."""
    kinds = " and ".join(type(one).__name__.strip("_") for one in module.parametrizations[name])  # type: ignore[index]
    learning = module.training
    try:
        with torch.no_grad():
            setattr(module, name, tensor.to(getattr(module, name)))
            module.train()
            made = [getattr(module, name) for _ in range(30)][-1]
    except (RuntimeError, ValueError, AssertionError, AttributeError, TypeError) as error:
        raise UserError(f"{source} has plain weights, which {kinds} cannot represent ({first_line(error)})") from None
    finally:
        module.train(learning)
    if not (made - tensor.to(made)).norm() <= 0.1 * made.norm():  # also if it is NaN
        raise UserError(f"{source} has plain weights, which {kinds} cannot represent")


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
        with warnings.catch_warnings(action="ignore"):  # about odd pickles, which are rejected anyway
            saved = torch.load(path, map_location="cpu", weights_only=True)
    except Exception:
        raise UserError(
            f"{path} is damaged, or holds more than tensors, which could run code when loaded: save its state_dict, or "
            "a .safetensors file"
        ) from None
    return _tensors(saved, path)


def _tensors(saved: Any, path: Path) -> dict[str, Tensor]:
    """The tensors in a checkpoint, possibly nested under known keys."""
    while isinstance(saved, dict) and (inside := [n for n in _INSIDE if isinstance(saved.get(n), dict)]):
        saved = saved[inside[0]]
    if isinstance(saved, dict) and (found := {name: x for name, x in saved.items() if isinstance(x, Tensor)}):
        return found
    raise UserError(f"{path} has no named weights: save a state_dict")


def _fitting(found: dict[str, Tensor], encoder: nn.Module) -> dict[str, Tensor]:
    """The tensors without the prefix, chosen such that most names match the encoder."""
    ours = encoder.state_dict().keys() | _parametrized(encoder).keys()
    prefixes = {""}
    for name in found:
        for one in _PREFIXES:
            if name.startswith(one):
                prefixes |= {one, *(one + two for two in _PREFIXES if name.startswith(one + two))}
    stripped = [{n.removeprefix(p): x for n, x in found.items() if n.startswith(p)} for p in sorted(prefixes)]
    return max(stripped, key=lambda names: len(names.keys() & ours))
