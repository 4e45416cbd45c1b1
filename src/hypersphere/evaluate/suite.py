"""All probes of one encoder, as one table."""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from hypersphere.data import Images, Loader
from hypersphere.data.loader import center_view
from hypersphere.data.splits import evenly
from hypersphere.errors import UserError
from hypersphere.evaluate.features import Accuracy, encode, evenness, extract, features_of, frozen, not_zero, seldom
from hypersphere.evaluate.fewshot import few_shot
from hypersphere.evaluate.finetune import LABELS, few_labels, fine_tune
from hypersphere.evaluate.knn import knn, knn_range
from hypersphere.evaluate.linear import linear, linear_cached
from hypersphere.probes import EVERY_PROBE, PROBES
from hypersphere.sphere import (
    alignment,
    alpha_req,
    cluster_learnability,
    effective_rank,
    intrinsic_dimension,
    lidar,
    rankme,
    uniformity,
    wasserstein_uniformity,
)
from hypersphere.util.progress import progress_bar
from hypersphere.views import Recipe

Evaluation = dict[str, dict[str, float]]
Stored = tuple[Tensor, Tensor, Tensor, Tensor]  # features and labels, queries and their truth
MEASURES = {  # of held-out features; they need no labels
    "uniformity": uniformity,
    "effective_rank": effective_rank,
    "rankme": rankme,
    "alpha_req": alpha_req,
    "wasserstein_uniformity": wasserstein_uniformity,
    "cluster_learnability": cluster_learnability,
    "intrinsic_dimension": intrinsic_dimension,
}
VIEWED, VIEWS = 1000, 10  # held-out images, at most, and augmented views of each, for LiDAR and alignment


def evaluate_encoder(
    encoder: nn.Module,
    train: Loader,
    test: Loader,
    probes: Sequence[str] = PROBES,
    *,
    neighbours: int = 200,
    temperature: float = 0.1,
    linear_epochs: int = 80,
    seed: int = 0,
    precision: torch.dtype = torch.float32,
    progress: bool = False,
) -> Evaluation:
    """{probe: {"top1": …, …}} in per cent, and what the held-out features look like on the sphere."""
    for probe in probes:
        if probe not in EVERY_PROBE:
            raise UserError(f"unknown probe {probe!r}: choose from {', '.join(EVERY_PROBE)}")
    train, test = train.labelled, test.labelled
    queries, truth = features_of(test, encoder, precision)
    if len(queries) < 2:  # a pair is the least that has a uniformity
        raise UserError(f"probes take two or more held-out images with labels that can be read, not {len(queries)}")
    sets = (*features_of(train, encoder, precision), queries, truth)
    for features in (sets[0], queries):
        if unusable := int((~features.isfinite().all(dim=1)).sum()):
            raise UserError(f"{unusable} of {len(features)} images have features of NaN or infinity: did it diverge?")
    found = _of_features(sets, probes, neighbours, temperature)

    def learnt_by(probe: Callable[..., Accuracy], some: Loader, title: str, epochs: int) -> dict[str, float]:
        with progress_bar(title, epochs, show=progress) as bar:
            options = {"epochs": epochs, "seed": seed, "precision": precision, "after_epoch": bar.update}
            return probe(encoder, some, test, **options)._asdict()

    if "linear" in probes:
        found["linear"] = learnt_by(linear, train, "linear probe", linear_epochs)
    for name, (share, epochs) in LABELS.items():
        if name in probes:
            some = few_labels(train, share)
            found[name] = {**learnt_by(fine_tune, some, name, epochs), "labels": len(some)}
    found["sphere"] = _on_the_sphere(queries, lambda: _features_of_views(encoder, test, precision))
    return found


def _on_the_sphere(features: Tensor, of_views: Callable[[], Tensor]) -> dict[str, float]:
    """Measures that need no labels. Rows of zeros do not count, nor do images with a view whose features are zero.

    `of_views` computes the features of augmented views, images × views × dimensions.
    """
    there = not_zero(features)
    found: dict[str, float] = {"images": len(features)}
    if len(there) < len(features):
        found["zero_rows"] = len(features) - len(there)
    if len(there) > 1:
        found |= {name: float(measure(there)) for name, measure in MEASURES.items()}
        views = of_views()
        views = views[views.any(dim=2).all(dim=1)]
        apart = alignment(views[:, 0], views[:, 1]) if len(views) else math.nan
        found |= {"lidar": float(lidar(views)), "alignment": float(apart)}
    return found


def _features_of_views(encoder: nn.Module, images: Loader, precision: torch.dtype) -> Tensor:
    """Features of augmented views of some images, chosen evenly: images × views × dimensions, float32."""
    device = images.labels.device
    some = images[evenly(len(images), VIEWED).to(device)]
    kind = precision if device.type == "cuda" else torch.float32
    with frozen(encoder), seldom():
        parts = [
            torch.stack([encode(encoder, view, precision) for view in views], dim=1)
            for views in some.augmented(VIEWS, kind)
        ]
    return torch.cat(parts) if parts else torch.empty(0, VIEWS, 1)


def _of_features(sets: Stored, probes: Sequence[str], neighbours: int, temperature: float) -> Evaluation:
    """By probes that see no image."""
    found: Evaluation = {}
    if "few-shot" in probes:
        for shots in (1, 5):
            mean, half = few_shot(*sets, shots=shots)
            found[f"{shots}-shot"] = {"top1": mean, "interval": half}
    if "knn" in probes:
        voting = {"k": min(neighbours, len(sets[0])), "temperature": temperature}
        found["knn"] = {**knn(*sets, neighbours, temperature)._asdict(), **voting, "range": knn_range(*sets)}
    if "linear-cached" in probes:
        found["linear-cached"] = linear_cached(*sets)._asdict()
    return found


class KnnMonitor:
    """k-NN accuracy and uniformity of the held-out images, during training."""

    def __init__(
        self,
        every: int,
        train: Images,
        test: Images,
        recipe: Recipe,
        neighbours: int,
        temperature: float,
        precision: torch.dtype = torch.float32,
    ) -> None:
        self.every, self.train, self.test, self.view = every, train.labelled, test, center_view(recipe)
        self.neighbours, self.temperature, self.precision = neighbours, temperature, precision

    def __call__(self, encoder: nn.Module) -> dict[str, float]:
        sets = (self.train, self.test)
        features, queries = (extract(encoder, some.pixels, self.view, precision=self.precision) for some in sets)
        seen = {"knn": math.nan}  # of a run that is about to be told that it diverged
        if features.isfinite().all() and queries.isfinite().all():
            labels, truth = self.train.labels, self.test.labels
            seen["knn"] = knn(features, labels, queries, truth, self.neighbours, self.temperature).top1
        with torch.no_grad():
            return {**seen, "uniformity_of_features": evenness(queries)}
