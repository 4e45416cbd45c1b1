"""Hyperspherical energy of every layer of a model, a state_dict or a file of weights, and what fine-tuning changes."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from hypersphere.errors import UserError
from hypersphere.regularize.layers import neuron_layers
from hypersphere.regularize.neurons import splitter
from hypersphere.sphere.evenness import even_energy
from hypersphere.sphere.measures import Metric, check_energy, mean_energies
from hypersphere.util.console import notify
from hypersphere.util.text import some_of

Weights = nn.Module | Mapping[str, Tensor] | str | os.PathLike[str]


@dataclass(frozen=True)
class LayerEnergy:
    """The energy of one layer.

    Attributes:
        energy: Mean energy of pairs of its neurons; the mean over its parts, such as queries, keys and values.
        neurons: Number of neurons.
        dimensions: Weights of a neuron.
        even: Energy of neurons that are spread evenly over the sphere in so many dimensions.
    """

    energy: float
    neurons: int
    dimensions: int
    even: float

    @property
    def excess(self) -> float:
        """Energy relative to an even spread: 0 if it is the same, 1 if it is twice as much."""
        return self.energy / self.even - 1


@dataclass(frozen=True)
class EnergyChange:
    """The energies of one layer in two models."""

    before: LayerEnergy
    after: LayerEnergy
    turned: float
    """Mean angle in radians by which the directions of its neurons differ."""

    @property
    def change(self) -> float:
        """Relative change of the energy."""
        return self.after.energy / self.before.energy - 1


def energies(
    of: Weights, *, s: float = 2.0, metric: Metric = "geodesic", device: str | torch.device | None = None
) -> dict[str, LayerEnergy]:
    """Hyperspherical energy of every layer, trainable or frozen.

    A file is read layer by layer, so that a model need not fit into memory. Memory is linear in the number of neurons.

    Args:
        of: A module; a state_dict; or a file of weights: .safetensors, or .pt with a state_dict. In state_dicts and
            files, every matrix counts whose name ends in "weight", with its rows as neurons, except embeddings.
        s: Power of the inverse distance, at least 0; −log at 0.
        metric: "geodesic" for the angle of neurons, or "euclidean" for their distance.
        device: Device that computes them. Default: where the weights are.

    Returns:
        The energies by layer, in the order of the model.

    Raises:
        UserError: If a file cannot be read, or there is no layer with neurons.

    Example:
        >>> model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU(), torch.nn.Linear(4, 4))
        >>> found = hs.energies(model)
        >>> found["0"].neurons, found["0"].dimensions
        (4, 8)
    """
    check_energy(s, metric)
    found = {name: _of_layer(parts, s, metric, device) for name, parts in _layers(of)}
    if not found:
        raise UserError("there is no layer with several neurons of several weights")
    return found


def compare(
    before: Weights,
    after: Weights,
    *,
    s: float = 2.0,
    metric: Metric = "geodesic",
    device: str | torch.device | None = None,
) -> dict[str, EnergyChange]:
    """Compare the energies of two models layer by layer, such as before and after fine-tuning, editing or merging.

    Args:
        before: A module, state_dict or file, as in `hs.energies`.
        after: Another one. Adapters of PEFT count as they act.
        s: Power of the inverse distance.
        metric: "geodesic" or "euclidean".
        device: Device that computes them.

    Returns:
        The layers that both have with the same shape, by their names in `before`. A message counts the others.

    Raises:
        UserError: If they have no layer in common.

    Example:
        >>> model = torch.nn.Sequential(torch.nn.Linear(8, 4))
        >>> tuned = torch.nn.Sequential(torch.nn.Linear(8, 4))
        >>> 0 < hs.compare(model, tuned)["0"].turned < 3.2
        True
    """
    check_energy(s, metric)
    others = {_plain(name): (name, parts) for name, parts in _layers(after)}
    found, gone = {}, []
    for name, parts in _layers(before):
        _, other = others.get(_plain(name), ("", ()))
        if [w.shape for w in parts] == [w.shape for w in other]:
            one, two = (_of_layer(of, s, metric, device) for of in (parts, other))
            found[name] = EnergyChange(one, two, _turned(parts, other))
            del others[_plain(name)]
        else:
            gone.append(name)
    if not found:
        raise UserError("the two models have no layer of the same name and shape")
    _tell_of_others(gone, [name for name, _ in others.values()])
    return found


def _tell_of_others(before: Sequence[str], after: Sequence[str]) -> None:
    """Say which layers were not compared."""
    sides = {"before": before, "after": after}
    parts = [f"{len(names)} {side} ({some_of(names)})" for side, names in sides.items() if names]
    if parts:
        notify(f"layers without a counterpart of the same name and shape are left out: {', '.join(parts)}")


def _plain(name: str) -> str:
    """The name of a layer without the prefixes of PEFT and of methods."""
    for prefix in ("base_model.model.", "encoder.", "module."):
        name = name.removeprefix(prefix)
    return name.replace(".base_layer", "")


@torch.no_grad()
def _of_layer(parts: tuple[Tensor, ...], s: float, metric: Metric, device: str | torch.device | None) -> LayerEnergy:
    flat = [w.detach().flatten(1).to(device) for w in parts]
    energy = mean_energies(flat, s, metric, half_space=False).mean().item()
    neurons, dimensions = sum(len(w) for w in flat), flat[0].shape[1]
    return LayerEnergy(energy, neurons, dimensions, even_energy(dimensions, s, metric))


@torch.no_grad()
def _turned(before: tuple[Tensor, ...], after: tuple[Tensor, ...]) -> float:
    angles = []
    for one, two in zip(before, after, strict=True):
        pairs = [nn.functional.normalize(w.detach().flatten(1).float(), dim=1) for w in (one, two.to(one.device))]
        gap = (pairs[0] - pairs[1]).norm(dim=1) / 2
        angles.append(2 * gap.clamp(max=1).asin())  # exact for small angles, where acos of the cosine is not
    return torch.cat(angles).mean().item()


def _layers(of: Weights) -> Iterator[tuple[str, tuple[Tensor, ...]]]:
    """Names and matrices of all layers, one at a time."""
    if isinstance(of, nn.Module):
        for layer in neuron_layers(of):
            yield layer.name, layer.matrices()
        return
    if not isinstance(of, Mapping | str | os.PathLike):
        raise UserError(f"weights must be a module, a state_dict or the path of a file, got {type(of).__name__}")
    for name, weight in of.items() if isinstance(of, Mapping) else _tensors_of(Path(of)):
        plain = name.removesuffix(".weight")
        if plain != name and _has_neurons(plain, weight):
            split = splitter(plain, nn.Identity(), None)
            yield plain, (weight,) if split is None else split(weight)


def _has_neurons(name: str, weight: Any) -> bool:
    matrix = isinstance(weight, Tensor) and weight.is_floating_point() and weight.ndim > 1
    last = name.rpartition(".")[2]
    embedding = "embed" in last or last in ("wte", "wpe", "shared")
    return matrix and len(weight) > 1 and weight[0].numel() > 1 and not embedding


def _tensors_of(file: Path) -> Iterator[tuple[str, Tensor]]:
    if not file.is_file():
        inside = sorted(one for suffix in (".pt", ".safetensors") for one in file.glob(f"*{suffix}"))
        wrong = "is a folder" if file.is_dir() else "does not exist"
        advice = f"pass {inside[0]}" if inside else "expected a file of weights, .safetensors or .pt"
        raise UserError(f"{file} {wrong}: {advice}")
    if file.suffix != ".safetensors":
        from hypersphere.nn.weights import read_weights

        yield from read_weights(file).items()
        return
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework="pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118  it is not a dict
                yield name, tensors.get_tensor(name)
    except SafetensorError as error:
        raise UserError(f"{file} cannot be read as .safetensors ({error})") from None
