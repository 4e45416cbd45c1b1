"""Diagnose a representation: of a run, a checkpoint, a model by name, or embeddings in a file or in memory."""

import contextlib
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from hypersphere.diagnostics.embeddings import Embeddings, of_array
from hypersphere.diagnostics.findings import FEW, Finding, alignment_finding, findings_of
from hypersphere.diagnostics.layers import block_outputs
from hypersphere.diagnostics.point_cloud import summarize, without_duplicates
from hypersphere.errors import UserError
from hypersphere.evaluate.features import frozen, nonzero_rows
from hypersphere.inference.diagnose_target import DiagnoseOptions, Subject, as_bytes, resolve_subject
from hypersphere.inference.embedding_files import read_embeddings
from hypersphere.regularize.layers import neuron_layers
from hypersphere.runs.run import Run
from hypersphere.sphere import effective_rank, hyperspherical_energy
from hypersphere.sphere.evenness import even_energy
from hypersphere.sphere.measures import mean_energies
from hypersphere.util.console import progress_bar
from hypersphere.util.notebook import html_table

EMBEDDINGS = (".npy", ".npz", ".parquet", ".csv")
MARKS = {"good": "✓", "weak": "~", "bad": "✗", "": "·"}  # by the health of a finding
SHOWN_LAYERS = 6  # if there are more than twice as many


class LayerEnergy(NamedTuple):
    """Mean pair energy (a2) of a layer's neurons or of a block's outputs.

    Attributes:
        name: Name of the layer or block.
        energy: Its energy.
        even: Energy of an even spread, which is infinite in two or three dimensions.
        rank: Effective rank of a block's outputs.
    """

    name: str
    energy: float
    even: float
    rank: float | None = None

    @property
    def times(self) -> float:
        """The energy as a multiple of that of an even spread."""
        return self.energy / self.even

    def __str__(self) -> str:
        rank = "" if self.rank is None else f"  effective rank {self.rank:.1f}"
        return f"{self.name:32} {f'{self.times:,.4g}' if isfinite(self.even) else '–':>10}{rank}"

    def to_json(self) -> dict[str, object]:
        """As a dictionary, with None for an infinite `even`, which JSON does not have."""
        return {**self._asdict(), "even": self.even if isfinite(self.even) else None}


@dataclass(frozen=True)
class Diagnosis:
    """What `diagnose` found. `print` shows it as `hypersphere diagnose` does.

    Attributes:
        of: What was diagnosed.
        findings: The measures, each with a sentence about what it means.
        blocks: Energies of the outputs of an encoder's blocks.
        weights: Energies of the neurons of an encoder's layers.

    Example:
        >>> import hypersphere as hs
        >>> found = hs.diagnose(torch.eye(8))
        >>> found.verdict
        'healthy (uncertain: only 8 rows)'
        >>> found.findings[0].name, found.findings[0].health
        ('uniformity (G2)', 'good')
    """

    of: str
    findings: list[Finding]
    blocks: list[LayerEnergy] = field(default_factory=list)
    weights: list[LayerEnergy] = field(default_factory=list)

    @property
    def verdict(self) -> str:
        """The worst of the findings in a few words."""
        bad, weak = ([f.name for f in self.findings if f.health == health] for health in ("bad", "weak"))
        few = "".join(f" (uncertain: only {f.value:.0f} rows)" for f in self.findings if f.name == FEW)
        if bad:
            return f"not healthy: see {', '.join(bad)}{few}"
        return f"no collapse, but weak: see {', '.join(weak)}{few}" if weak else f"healthy{few}"

    @property
    def numbers(self) -> dict[str, float]:
        """Measures by names that loggers accept, such as `uniformity` and `effective_rank`."""
        return _Numbers({_key(finding.name): finding.value for finding in self.findings})

    def __str__(self) -> str:
        return "\n".join(text for _, text in self.lines())

    def _repr_html_(self) -> str:
        """A table for notebooks."""
        rows = [
            (MARKS[f.health], f.name, f.measured.format(".4g", ".2g"), f.against, f.sentence) for f in self.findings
        ]
        head = ("", "measure", "value", "compare with", "meaning")
        return html_table(f"{self.of}: {self.verdict}", rows, head)

    def lines(self) -> Iterator[tuple[str, str]]:
        """Lines of text, each with its kind: "title", "sentence", "layers", or the health of a finding."""
        yield "title", self.of
        for finding in self.findings:
            number = f"{finding.name:21} {finding.measured.format('.4g', '.2g'):>18}  ({finding.against})"
            yield finding.health, f"{MARKS[finding.health]} {number}"
            yield "sentence", f"  {finding.sentence}"
        for title, layers in (("outputs of its blocks", self.blocks), ("neurons of its layers", self.weights)):
            if layers:
                yield from (("layers", text) for text in _layer_lines(title, layers))
        yield "title", f"{self.verdict[0].upper()}{self.verdict[1:]}."
        yield "sentence", "  ".join(f"{mark} {health or 'no judgement'}" for health, mark in MARKS.items())
        yield "sentence", "G2: log of the mean of exp(−2 distance²), a2: mean of 1 / angle², over pairs"

    def to_json(self) -> dict[str, Any]:
        """Everything as a dictionary that JSON can hold."""
        findings = {finding.name: finding.to_json() for finding in self.findings}
        layers = {name: [layer.to_json() for layer in getattr(self, name)] for name in ("blocks", "weights")}
        return {"of": self.of, "verdict": self.verdict, "findings": findings, **layers}


class _Numbers(dict[str, float]):
    """Measures by key. The names of findings, which were the keys of version 0.2.0, still work, with a warning."""

    def __missing__(self, name: str) -> float:
        if _key(name) not in self:
            raise KeyError(name)
        warnings.warn(f"the key {name!r} is now {_key(name)!r}", DeprecationWarning, stacklevel=2)
        return self[_key(name)]


def _key(name: str) -> str:
    """The name of a finding without what is in brackets, as an identifier: "uniformity (G2)" is uniformity."""
    return re.sub(r"\W+", "_", re.sub(r" *\(.*\)", "", name)).strip("_").lower()


def _layer_lines(title: str, layers: list[LayerEnergy]) -> Iterator[str]:
    """All layers in order; of many, those with the highest energy relative to an even spread."""
    highest = sorted(layers, key=lambda layer: -layer.times)
    few = len(layers) <= 2 * SHOWN_LAYERS
    shown = "" if few else f": {SHOWN_LAYERS} of {len(layers)}"
    yield f"energy (a2) of the {title} (1: an even spread; far more: many nearly coincide){shown}"
    yield from (f"  {layer}" for layer in layers if few or layer in highest[:SHOWN_LAYERS])
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
    trust: bool = False,
    progress: bool = False,
) -> Diagnosis:
    """Measure how features spread over the sphere, and say whether they have collapsed. Needs no labels.

    Args:
        target: Embeddings of shape (N, D) (a tensor, an array, a DataFrame, a list of rows, a .npy, .npz or .parquet
            file, or a .csv file of `embed`); or an encoder: a run or its folder, an exported folder, a checkpoint, a
            module, or the name of a torchvision or timm model. If a module does not return a tensor, its
            `pooler_output`, the mean of its `last_hidden_state` or its first output counts.
        data: Images to show to the encoder: a dataset by name or path, or images of shape (N, C, H, W), uint8 or
            floats between 0 and 1. By default the held-out images of the run (images it was trained on if none were
            held out), or the digits of scikit-learn.
        images: Number of images. By default 2,000 of a run's dataset, else 256.
        size: Side of the encoder's input in pixels. By default the run's, or what the module itself says
            (`input_size`, timm's `pretrained_cfg`, `image_size`, Hugging Face's `config.image_size`), or the side of
            the images. Digits are enlarged to 224 if the first convolution has a stride and three channels, else to 32.
        encoder: Name of the architecture that a checkpoint belongs to, such as torchvision/resnet50.
        pretrained: Whether a model by name gets the pretrained weights of its library.
        root: Folder of dataset files, or the new location of a run's image folder that has moved.
        device: Device to compute on, such as "cpu" or "cuda:1". By default a GPU if there is one.
        trust: Whether to import code and to read images that a run or an exported folder names. Those that you made do
            not need it.
        progress: Whether to show a progress bar.

    Returns:
        The findings, which `print` shows as `hypersphere diagnose` does. `.numbers` has the measures.

    Raises:
        UserError: If `target` is unknown or damaged, or an option does not apply to it.

    Example:
        >>> import hypersphere as hs
        >>> collapsed = torch.ones(100, 8) + 1e-5 * torch.randn(100, 8, generator=torch.Generator().manual_seed(0))
        >>> found = hs.diagnose(collapsed)
        >>> found.verdict.startswith("not healthy: see uniformity (G2)")
        True
        >>> round(found.numbers["effective_rank"], 2)
        1.0
    """
    shown = as_bytes(torch.as_tensor(data)) if isinstance(data, Tensor | np.ndarray) else data
    where = None if root is None else Path(root)
    options = DiagnoseOptions(shown, encoder, pretrained, images, size, where, device, trust)
    if not isinstance(target, str | Path | Run | nn.Module):
        _check_no_encoder_options(options, "embeddings")
        return _diagnose_embeddings(of_array(_as_array(target)))
    if isinstance(target, str | Path) and Path(target).suffix in EMBEDDINGS:
        if not Path(target).is_file():
            raise UserError(f"{target} does not exist")
        _check_no_encoder_options(options, f"embedding files such as {target}")
        return _diagnose_embeddings(read_embeddings(Path(target)))
    return _diagnose_encoder(resolve_subject(target, options), progress)


def _as_array(target: Any) -> np.ndarray:
    """Embeddings in memory as an array."""
    if isinstance(target, Tensor) and not target.is_complex():
        return target.detach().cpu().float().numpy()
    if isinstance(target, list | tuple) or hasattr(target, "__array__"):
        with contextlib.suppress(ValueError, TypeError, RuntimeError):
            return np.asarray(target)
        raise UserError("embeddings must be N × D numbers: got rows of different lengths, or no rows")
    expected = "embeddings N × D, a run, a network, or a name or path"
    raise UserError(f"diagnose expects {expected}, got {type(target).__name__}")


def _check_no_encoder_options(options: DiagnoseOptions, of: str) -> None:
    for name in ("data", "encoder", "pretrained", "images", "size"):
        if getattr(options, name) is not getattr(DiagnoseOptions, name):
            raise UserError(f"`{name}` applies to encoders, not to {of}")


def _diagnose_embeddings(points: Embeddings) -> Diagnosis:
    cloud = summarize(points)
    groups = cloud.groups
    pairs = f", pairs within {len(groups)} groups of {len(groups[0]):,}" if len(groups) > 1 else ""
    sampled = f", a sample of {len(cloud.sample):,}" if cloud.sampled else ""
    return Diagnosis(f"{points.name}: {cloud.rows:,} × {cloud.dimensions}{sampled}{pairs}", findings_of(cloud))


def _diagnose_encoder(shown: Subject, progress: bool) -> Diagnosis:
    outputs: dict[str, list[Tensor]] = {}
    pairs: list[tuple[Tensor, Tensor]] = []
    with frozen(shown.encoder), progress_bar("diagnosis", len(shown.pixels), show=progress) as bar:
        for middle, one, other in shown.views():
            for name, x in block_outputs(shown.encoder, middle).items():
                outputs.setdefault(name, []).append(x.cpu())
            pairs.append((shown.features(one).cpu(), shown.features(other).cpu()))
            bar.update(sum(len(side) for side, _ in pairs))
        blocks = {name: torch.cat(parts) for name, parts in outputs.items()}
        weights = [layer for name, part in shown.parts.items() for layer in _weight_energies(name, part)]
    if not blocks["output"].isfinite().all():
        raise UserError(f"{shown.title}: features have NaN or infinity; check the weights")
    cloud = summarize(of_array(blocks["output"].numpy(), shown.title))
    one, other = (torch.cat(side) for side in zip(*pairs, strict=True))
    of = f"{shown.title}; features of {cloud.dimensions} dimensions"
    layers = [_block_energy(name, x) for name, whole in blocks.items() if len(x := nonzero_rows(whole)) > 1]
    return Diagnosis(of, [alignment_finding(one, other), *findings_of(cloud)], layers, weights)


def _block_energy(name: str, x: Tensor) -> LayerEnergy:
    energy = float(hyperspherical_energy(without_duplicates(x), 2, "geodesic"))
    return LayerEnergy(name, energy, even_energy(x.shape[1]), float(effective_rank(x)))


def _weight_energies(name: str, part: nn.Module) -> Iterator[LayerEnergy]:
    for layer in neuron_layers(part):
        groups = [group.flatten(1) for group in layer.matrices()]
        energy = mean_energies(groups, 2, "geodesic", half_space=False).mean()
        full_name = f"{name}.{layer.name}" if layer.name else name
        yield LayerEnergy(full_name, float(energy), even_energy(groups[0].shape[1]))
