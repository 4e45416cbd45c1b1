"""Several probes of one encoder, as one table."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from hypersphere import sphere
from hypersphere.data import Images, Loader
from hypersphere.data.loader import center_view
from hypersphere.data.splits import evenly
from hypersphere.errors import UserError
from hypersphere.evaluate.features import (
    Accuracy,
    chance_of,
    encode,
    extract,
    features_of,
    frozen,
    nonzero_rows,
    uniformity_of_nonzero,
    warn_of_lost_classes,
    without_autotuning,
)
from hypersphere.evaluate.fewshot import few_shot
from hypersphere.evaluate.finetune import LABELS, few_labels, fine_tune
from hypersphere.evaluate.knn import USUAL, knn, knn_by_setting
from hypersphere.evaluate.linear import linear, linear_cached
from hypersphere.probes import EVERY_PROBE, PROBES, baseline_of
from hypersphere.sphere import alignment, lidar
from hypersphere.util.console import Progress, duration, progress_bar
from hypersphere.views import ViewPipeline

Evaluation = dict[str, dict[str, float]]  # measures by probe
Stored = tuple[Tensor, Tensor, Tensor, Tensor]  # features, labels, queries, truth
LABEL_FREE = (  # measures of `sphere`, of held-out features
    "uniformity",
    "effective_rank",
    "rankme",
    "alpha_req",
    "wasserstein_uniformity",
    "cluster_learnability",
    "intrinsic_dimension",
)
LONG = 20.0  # seconds of a probe that is announced
VIEWED, VIEWS = 1000, 10  # LiDAR and alignment: at most so many held-out images, and views of each


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
    baseline: Callable[[], nn.Module] | None = None,
    after_probe: Callable[[Evaluation], None] = lambda found: None,
) -> Evaluation:
    """Run several probes on one encoder, cheap ones first, and measure its held-out features on the sphere.

    Args:
        encoder: A module that maps images of shape (B, C, H, W) to features of shape (B, D).
        train: Images that probes are trained on; those without a label are ignored.
        test: Held-out images; those without a label are ignored.
        probes: Names of probes: `linear`, `linear-cached`, `knn`, `few-shot`, `fine-tune`, `semi-10`, `semi-1`.
        neighbours: k of the `knn` probe.
        temperature: Temperature of the `knn` probe.
        linear_epochs: Epochs of the `linear` probe.
        seed: Seed of the order of images in probes that train.
        precision: dtype in which the encoder computes.
        progress: Whether to show progress bars.
        baseline: Returns an encoder to compare with, such as an untrained one. The probes that need only features
            are run on it, too.
        after_probe: Called with the measures of each probe when it ends.

    Returns:
        Measures by probe, accuracies in per cent: `{"knn": {"top1": ..., "top5": ...}, ...}`. "sphere" has measures
        of the held-out features that need no labels. With a baseline its measures are called such as "random/knn",
        and "labels" has the number of classes and the accuracy of chance.

    Raises:
        UserError: If a probe is unknown, fewer than two held-out images have labels, or features are not finite.

    Example:
        >>> import hypersphere as hs
        >>> from hypersphere.data import load_data
        >>> from hypersphere.views import PIPELINES
        >>> train, test = (images.loader(PIPELINES["digits"], 0, torch.device("cpu")) for images in load_data("digits"))
        >>> hs.evaluate.evaluate_encoder(nn.Flatten(), train, test, ["knn"], neighbours=20)["knn"]["top1"] > 90
        True
    """
    for probe in probes:
        if probe not in EVERY_PROBE:
            raise UserError(f"unknown probe {probe!r}: choose from {', '.join(EVERY_PROBE)}")
    train, test = train.labelled, test.labelled
    queries, truth = features_of(test, encoder, precision)
    if len(queries) < 2:  # uniformity needs a pair
        raise UserError(f"probes need at least two readable held-out images with labels, got {len(queries)}")
    sets = (*features_of(train, encoder, precision), queries, truth)
    warn_of_lost_classes(train.labels, sets[1], train.classes)
    for features in (sets[0], queries):
        if bad := int((~features.isfinite().all(dim=1)).sum()):
            raise UserError(f"{bad} of {len(features)} images have features of NaN or infinity: did the run diverge?")
    found: Evaluation = {}

    def add(measured: Evaluation) -> None:
        found.update(measured)
        after_probe(measured)

    probe_features = partial(_probe_features, probes=probes, neighbours=neighbours, temperature=temperature)
    for measured in probe_features(sets):
        add(measured)
    add({"sphere": _measure_sphere(queries, lambda: _features_of_views(encoder, test, precision))})
    if baseline is not None:
        add({"labels": {"classes": len(sets[1].unique()), "chance": chance_of(truth)}})
    if baseline is not None and {*probes} & {"few-shot", "knn", "linear-cached"}:
        other = baseline()
        for measured in probe_features((*features_of(train, other, precision), *features_of(test, other, precision))):
            add({baseline_of(name): values for name, values in measured.items()})

    def trained(name: str, probe: Callable[..., Accuracy], some: Loader, title: str, epochs: int) -> dict[str, float]:
        with progress_bar(title, epochs, show=progress) as bar:
            options = {
                "epochs": epochs,
                "seed": seed,
                "precision": precision,
                "after_epoch": _announced(bar, name, epochs),
            }
            return probe(encoder, some, test, **options)._asdict()

    if "linear" in probes:
        add({"linear": trained("linear", linear, train, "linear probe", linear_epochs)})
    for name, (share, epochs) in LABELS.items():
        if name in probes:
            some = few_labels(train, share)
            add({name: {**trained(name, fine_tune, some, name, epochs), "labels": len(some)}})
    return found


def _announced(bar: Progress, name: str, epochs: int) -> Callable[[int], None]:
    """Move a bar after each epoch, and say how long all will take, if that is long.

    The first epoch is slower: it decodes images and chooses how to compute. So the second one tells, unless the first
    takes long.
    """
    began = time.monotonic()
    first = 0.0

    def announce(limit: str, seconds: float) -> None:
        if seconds > LONG:
            kept = "what is finished is kept after Ctrl-C"
            bar.line(f"{name}: {limit} {duration(seconds)} for {epochs} epochs; {kept}")

    def after_epoch(epoch: int) -> None:
        nonlocal first
        now = time.monotonic() - began
        if epoch == 1:
            first = now
            if first > LONG:
                announce("up to", first * epochs)
        elif epoch == 2 < epochs:
            announce("about", first + (now - first) * (epochs - 1))
        bar.update(epoch)

    return after_epoch


def _probe_features(sets: Stored, probes: Sequence[str], neighbours: int, temperature: float) -> Iterator[Evaluation]:
    """The probes that need only features, one after the other."""
    if "few-shot" in probes:
        shots = {f"{count}-shot": few_shot(*sets, shots=count) for count in (1, 5)}
        yield {name: {"top1": mean, "interval": half} for name, (mean, half) in shots.items()}
    if "knn" in probes:
        found = {**knn(*sets, neighbours, temperature)._asdict(), "k": min(neighbours, len(sets[0]))}
        top = knn_by_setting(*sets)
        found |= {"temperature": temperature, "range": max(top.values()) - min(top.values())}
        yield {"knn": found | ({"top1_of_200": top[USUAL]} if len(sets[0]) >= USUAL[0] else {})}
    if "linear-cached" in probes:
        yield {"linear-cached": linear_cached(*sets)._asdict()}


def _measure_sphere(features: Tensor, features_of_views: Callable[[], Tensor]) -> dict[str, float]:
    """Measures that need no labels, without rows of zeros, and without images that have a view of zero features.

    `features_of_views` computes features of augmented views, of shape (images, views, dimensions).
    """
    rows = nonzero_rows(features)
    found: dict[str, float] = {"images": len(features)}
    if len(rows) < len(features):
        found["zero_rows"] = len(features) - len(rows)
    if len(rows) > 1:
        found |= {name: float(getattr(sphere, name)(rows)) for name in LABEL_FREE}
        found["uniformity"] = uniformity_of_nonzero(rows)  # as in all results so far, to the bit
        views = features_of_views()
        views = views[views.any(dim=2).all(dim=1)]
        apart = alignment(views[:, 0], views[:, 1]) if len(views) else math.nan
        found |= {"lidar": float(lidar(views)), "alignment": float(apart)}
    return found


def _features_of_views(encoder: nn.Module, images: Loader, precision: torch.dtype) -> Tensor:
    """Features of augmented views of evenly chosen images, of shape (images, views, dimensions) in float32."""
    device = images.labels.device
    some = images[evenly(len(images), VIEWED).to(device)]
    dtype = precision if device.type == "cuda" else torch.float32
    with frozen(encoder), without_autotuning():
        parts = [
            torch.stack([encode(encoder, view, precision) for view in views], dim=1)
            for views in some.augmented(VIEWS, dtype)
        ]
    return torch.cat(parts) if parts else torch.empty(0, VIEWS, 1)


class KnnMonitor:
    """Measures k-NN accuracy and uniformity of held-out images during training.

    Args:
        every: Epochs between measurements.
        train: Images whose features vote; those without a label are ignored.
        test: Held-out images.
        recipe: Views of the dataset; images are shown as centre crops.
        neighbours: k.
        temperature: Temperature of the votes.
        precision: dtype in which the encoder computes.

    Example:
        >>> import hypersphere as hs
        >>> from hypersphere.data import load_data
        >>> from hypersphere.views import PIPELINES
        >>> train, test = load_data("digits")
        >>> monitor = hs.evaluate.KnnMonitor(1, train, test, PIPELINES["digits"], neighbours=20, temperature=0.1)
        >>> sorted(monitor(nn.Flatten()))
        ['knn', 'uniformity_of_features']
    """

    def __init__(
        self,
        every: int,
        train: Images,
        test: Images,
        recipe: ViewPipeline,
        neighbours: int,
        temperature: float,
        precision: torch.dtype = torch.float32,
    ) -> None:
        self.every, self.train, self.test, self.view = every, train.labelled, test, center_view(recipe)
        self.neighbours, self.temperature, self.precision = neighbours, temperature, precision

    @property
    def labels(self) -> Tensor:
        """Classes of the held-out images."""
        return self.test.labels

    def __call__(self, encoder: nn.Module) -> dict[str, float]:
        sets = (self.train, self.test)
        features, queries = (extract(encoder, some.pixels, self.view, precision=self.precision) for some in sets)
        seen = {"knn": math.nan}  # if the run has diverged, which the training loop reports
        if features.isfinite().all() and queries.isfinite().all():
            labels, truth = self.train.labels, self.test.labels
            seen["knn"] = knn(features, labels, queries, truth, self.neighbours, self.temperature).top1
        with torch.no_grad():
            return {**seen, "uniformity_of_features": uniformity_of_nonzero(queries)}
