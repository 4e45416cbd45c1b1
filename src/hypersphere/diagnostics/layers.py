"""Hyperspherical energy by layer: of the outputs of a network's blocks, and of its weights."""

import math
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from hypersphere.evaluate.features import frozen, nonzero_rows, uniformity_of_nonzero, without_autotuning
from hypersphere.kernels import runs_on
from hypersphere.nn.blocks import blocks_of, features_in, heard, mean_over_positions
from hypersphere.regularize import EnergyRegularizer
from hypersphere.sphere.measures import mean_energies


def block_outputs(encoder: nn.Module, inputs: Tensor) -> dict[str, Tensor]:
    """Outputs of the blocks of an encoder, averaged over the image, and its output.

    Args:
        encoder: A network.
        inputs: Images of shape (N, C, H, W).

    Returns:
        Tensors of shape (N, channels) by the name of the block; the encoder's output is named "output".
    """
    with heard(blocks_of(encoder), lambda x: mean_over_positions(x.detach().float())) as blocks:
        output = features_in(encoder(inputs))
    return {**blocks, "output": output}


class EnergyMonitor:
    """Measures energies and uniformity during training.

    The mean pair energy (a2) is that of each block's outputs for a fixed batch, and of the weights of each part of a
    method, regularized or not. The uniformity is that of the features.
    """

    def __init__(
        self,
        every: int,
        pieces: Callable[[], Iterable[Tensor]],
        parts: dict[str, nn.Module],
        precision: torch.dtype,
    ) -> None:
        """`pieces` returns the batch in pieces, from the start at each call."""
        self.every, self.pieces, self.precision = every, pieces, precision
        self.weights = {name: EnergyRegularizer(part, metric="geodesic") for name, part in parts.items()}
        self.compiled = False

    def __call__(self, encoder: nn.Module) -> dict[str, float]:
        with frozen(encoder), without_autotuning():
            outputs = self._outputs(encoder)
            if runs_on(outputs["output"]) and not self.compiled:
                from hypersphere.kernels.precompiling import precompile

                precompile(lambda: self._energies(outputs), outputs["output"].device)
                self.compiled = True
            return self._energies(outputs)

    def _outputs(self, encoder: nn.Module) -> dict[str, Tensor]:
        found: dict[str, list[Tensor]] = {}
        for inputs in self.pieces():
            with torch.autocast(inputs.device.type, dtype=self.precision, enabled=self.precision != torch.float32):
                for name, x in block_outputs(encoder, inputs).items():
                    found.setdefault(name, []).append(x)
        return {name: torch.cat(parts) for name, parts in found.items()}

    def _energies(self, outputs: dict[str, Tensor]) -> dict[str, float]:
        points = {f"energy/{name}": nonzero_rows(x) for name, x in outputs.items()}
        pairs = {name: x for name, x in points.items() if len(x) > 1}
        energies = mean_energies([*pairs.values()], 2, "geodesic", half_space=False).tolist() if pairs else ()
        found = {**dict.fromkeys(points, math.nan), **dict(zip(pairs, energies, strict=True))}
        found |= {f"energy_of_weights/{name}": energy().item() for name, energy in self.weights.items()}
        return {**found, "uniformity_of_features": uniformity_of_nonzero(outputs["output"])}
