"""Is this representation any good? Of a run, a checkpoint, a model by name, embeddings in a file or in memory."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from hypersphere.diagnostics import (
    Embeddings,
    Finding,
    aligned,
    block_outputs,
    distinct,
    even_energy,
    findings_of,
    gather,
    of_array,
)
from hypersphere.errors import UserError
from hypersphere.evaluate.features import frozen, not_zero
from hypersphere.inference.subject import Subject, Wishes, as_bytes, subject_of
from hypersphere.inference.vectors import read_embeddings
from hypersphere.regularize import groups_of, layers_of
from hypersphere.runs.run import Run
from hypersphere.sphere import effective_rank, hyperspherical_energy
from hypersphere.sphere.measures import mean_energies
from hypersphere.util.progress import progress_bar

EMBEDDINGS = (".npy", ".npz", ".parquet")
MARKS = {"good": "✓", "weak": "~", "bad": "✗", "": "·"}  # of a finding's health
MOST = 6  # layers of weights that are shown


class Layer(NamedTuple):
    """The mean pair energy (a2) of a layer's neurons or of a block's outputs, and that of an even spread."""

    name: str
    energy: float
    even: float
    rank: float | None = None  # effective, of a block's outputs

    @property
    def times(self) -> float:
        return self.energy / self.even

    def __str__(self) -> str:
        """Beside an even spread of 1; in two or three dimensions that has no finite energy to compare with."""
        rank = "" if self.rank is None else f"  effective rank {self.rank:.1f}"
        return f"{self.name:32} {f'{self.times:,.4g}' if isfinite(self.even) else '–':>10}{rank}"

    def to_json(self) -> dict[str, object]:
        """In two or three dimensions an even spread has no finite energy, and JSON no infinity."""
        return {**self._asdict(), "even": self.even if isfinite(self.even) else None}


@dataclass(frozen=True)
class Diagnosis:
    """What was found: `print` shows it as the command does, `numbers` has the measures, `findings` what each means."""

    of: str  # what was looked at
    findings: list[Finding]
    blocks: list[Layer] = field(default_factory=list)
    weights: list[Layer] = field(default_factory=list)

    @property
    def verdict(self) -> str:
        bad, weak = ([f.name for f in self.findings if f.health == health] for health in ("bad", "weak"))
        if bad:
            return f"not healthy: see {', '.join(bad)}"
        return f"no collapse, but weak: see {', '.join(weak)}" if weak else "healthy"

    @property
    def numbers(self) -> dict[str, float]:
        """Each measure by its name, to log or to compare."""
        return {finding.name: finding.measured.value for finding in self.findings}

    def __str__(self) -> str:
        return "\n".join(text for _, text in self.lines())

    def lines(self) -> Iterator[tuple[str, str]]:
        """What it says, each line with what kind it is."""
        yield "title", self.of
        for finding in self.findings:
            number = f"{finding.name:21} {finding.measured!s:>18}  ({finding.against})"
            yield finding.health, f"{MARKS[finding.health]} {number}"
            yield "sentence", f"  {finding.sentence}"
        for title, layers in (("outputs of its blocks", self.blocks), ("neurons of its layers", self.weights)):
            if layers:
                yield from (("layers", text) for text in _layers_told(title, layers))
        yield "title", f"{self.verdict[0].upper()}{self.verdict[1:]}."
        yield "sentence", "  ".join(f"{mark} {health or 'no judgement'}" for health, mark in MARKS.items())
        yield "sentence", "G2: log of the mean of exp(−2 distance²), a2: mean of 1 / angle², over pairs"

    def to_json(self) -> dict[str, Any]:
        findings = {finding.name: finding.to_json() for finding in self.findings}
        layers = {name: [layer.to_json() for layer in getattr(self, name)] for name in ("blocks", "weights")}
        return {"of": self.of, "verdict": self.verdict, "findings": findings, **layers}


def _layers_told(title: str, layers: list[Layer]) -> Iterator[str]:
    """In order; of many, those with most energy for their size."""
    highest = sorted(layers, key=lambda layer: -layer.times)
    few = len(layers) <= 2 * MOST
    told = "an even spread being 1, far more meaning that many nearly coincide"
    yield f"energy (a2) of the {title}, {told}{'' if few else f': {MOST} of {len(layers)}'}"
    yield from (f"  {layer}" for layer in layers if few or layer in highest[:MOST])
    if not few:
        middle, last = highest[len(layers) // 2], highest[-1]
        yield f"  of all: highest {highest[0].times:.4g}, median {middle.times:.4g}, lowest {last.times:.4g}"


def diagnose(
    target: str | Path | Run | nn.Module | Tensor | npt.ArrayLike,
    *,
    data: str | Tensor | np.ndarray | None = None,
    images: int | None = None,
    size: int | None = None,
    encoder: str | None = None,
    pretrained: bool = False,
    root: str | Path | None = None,
    device: str | torch.device = "auto",
    progress: bool = False,
) -> Diagnosis:
    """Look at embeddings N × D (an array, a tensor, a DataFrame, a list of rows, a .npy, .npz or .parquet file), a run
    or its folder, a checkpoint of the `encoder` named, a network, or a model of torchvision or timm by name.

    An encoder is shown `images` held-out images of `data`: by default 2,000 of the run's, or else 256 of the digits
    that come with scikit-learn. Where none were held out, for want of labels, they are some that it learnt from. `data`
    may be images too, N × C × H × W, of bytes or of floats from 0 to 1.

    They are made `size` pixels a side: by default the run's, or what the network says of itself (`input_size`, timm's
    `pretrained_cfg`, `image_size`, Hugging Face's `config.image_size`), or else what the data have; digits are enlarged
    to 224 where the first convolution skips pixels in colour, and to 32 where not. Of what is no tensor,
    `pooler_output`, the mean of `last_hidden_state` or the first part is looked at.

    `pretrained` takes a library's weights along, `root` is the folder of data files, or where the folder of
    a run's images lies now.
    """
    shown = as_bytes(torch.as_tensor(data)) if isinstance(data, Tensor | np.ndarray) else data
    wishes = Wishes(shown, encoder, pretrained, images, size, None if root is None else Path(root), device)
    if not isinstance(target, str | Path | Run | nn.Module):
        _check_unsaid(wishes, "embeddings")
        return _of_points(of_array(_as_array(target)))
    if isinstance(target, str | Path) and Path(target).suffix in EMBEDDINGS:
        if not Path(target).is_file():
            raise UserError(f"there is no file {target}")
        _check_unsaid(wishes, str(target))
        return _of_points(read_embeddings(Path(target)))
    return _of_encoder(subject_of(target, wishes), progress)


def _as_array(target: Any) -> np.ndarray:
    """Of embeddings in memory: a tensor, an array, what can be one, or rows in a list."""
    if isinstance(target, Tensor) and not target.is_complex():
        return target.detach().cpu().float().numpy()
    if isinstance(target, list | tuple) or hasattr(target, "__array__"):
        with contextlib.suppress(ValueError, TypeError, RuntimeError):
            return np.asarray(target)
        raise UserError("embeddings are N × D numbers: these are no rows, or not as long as each other")
    wanted = "embeddings N × D, a run, a network, or the name or path of one"
    raise UserError(f"diagnose looks at {wanted}, not at a {type(target).__name__}")


def _check_unsaid(wishes: Wishes, of: str) -> None:
    """Embeddings are looked at as they are."""
    for name in ("data", "encoder", "pretrained", "images", "size"):
        if getattr(wishes, name) is not getattr(Wishes, name):
            raise UserError(f"`{name}` is about an encoder: {of} needs none")


def _of_points(points: Embeddings) -> Diagnosis:
    cloud = gather(points)
    groups = cloud.groups
    pairs = f", pairs within {len(groups)} groups of {len(groups[0]):,}" if len(groups) > 1 else ""
    sampled = f", of which {len(cloud.sample):,} were sampled" if cloud.sampled else ""
    return Diagnosis(f"{points.name}: {cloud.rows:,} × {cloud.dimensions}{sampled}{pairs}", findings_of(cloud))


def _of_encoder(shown: Subject, progress: bool) -> Diagnosis:
    outputs: dict[str, list[Tensor]] = {}
    pairs: list[tuple[Tensor, Tensor]] = []
    with frozen(shown.encoder), progress_bar("diagnosis", len(shown.pixels), show=progress) as bar:
        for middle, one, other in shown.views():
            for name, x in block_outputs(shown.encoder, middle).items():
                outputs.setdefault(name, []).append(x.cpu())
            pairs.append((shown.features(one).cpu(), shown.features(other).cpu()))
            bar.update(sum(len(side) for side, _ in pairs))
        blocks = {name: torch.cat(parts) for name, parts in outputs.items()}
        weights = [layer for name, part in shown.parts.items() for layer in _weights(name, part)]
    if not blocks["output"].isfinite().all():
        raise UserError(f"{shown.title}: its features hold NaN or infinity; do its weights?")
    cloud = gather(of_array(blocks["output"].numpy(), shown.title))
    one, other = (torch.cat(side) for side in zip(*pairs, strict=True))
    of = f"{shown.title}; features of {cloud.dimensions} dimensions"
    layers = [_block(name, x) for name, whole in blocks.items() if len(x := not_zero(whole)) > 1]
    return Diagnosis(of, [aligned(one, other), *findings_of(cloud)], layers, weights)


def _block(name: str, x: Tensor) -> Layer:
    energy = float(hyperspherical_energy(distinct(x), 2, "geodesic"))
    return Layer(name, energy, even_energy(x.shape[1]), float(effective_rank(x)))


def _weights(name: str, part: nn.Module) -> Iterator[Layer]:
    for where, layer in layers_of(part):
        groups = [group.flatten(1) for group in groups_of(layer)]
        energy = mean_energies(groups, 2, "geodesic", half_space=False).mean()
        yield Layer(f"{name}.{where}" if where else name, float(energy), even_energy(groups[0].shape[1]))
