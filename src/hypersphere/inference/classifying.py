"""Make a classifier of an encoder and labelled images: an exported folder with a head."""

import hashlib
import shlex
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn

from hypersphere.config import Config
from hypersphere.data import Dataset, DataSpec, Holdout, Split
from hypersphere.data.dataset import Unreadable
from hypersphere.data.resolving import dataset_of
from hypersphere.data.unreadable import UNREADABLE, replace_unreadable
from hypersphere.errors import UserError
from hypersphere.evaluate import Accuracy, accuracy, chance_of
from hypersphere.evaluate.calibration import (
    FEWEST,
    Reliability,
    calibrated_apart,
    fit_temperature,
    log_loss,
    reliability,
)
from hypersphere.evaluate.classifier import LinearHead, fit_head
from hypersphere.evaluate.features import features_and_samples, warn_of_lost_classes
from hypersphere.evaluate.finetune import tuned_copy
from hypersphere.inference.classify_source import EncoderSource, resolve_source
from hypersphere.inference.exporting import CLASSIFIER_ONNX, check_replaceable
from hypersphere.inference.head import HEAD, Head
from hypersphere.inference.loading import plain, weights_as_bytes
from hypersphere.nn.weights import CARD, WEIGHTS
from hypersphere.runs.machine import evaluation_execution
from hypersphere.runs.preprocess import Preprocess
from hypersphere.runs.run import Run
from hypersphere.util.console import notify, pluralize, progress_bar
from hypersphere.util.files import as_json, make_folder, put_in_place, write_atomically
from hypersphere.util.trust import remember_own_file

Kind = Literal["linear", "finetune"]


class Mistake(NamedTuple):
    """A held-out image with a wrong prediction."""

    sample: int  # index in the held-out images
    name: str
    truth: str
    predicted: str
    probability: float  # of the predicted class


@dataclass(frozen=True)
class Classified:
    """A classifier that was written, and how it does on held-out images, of which it saw none in training.

    Attributes:
        folder: The exported folder, for `hs.load(folder).predict(images)`.
        classes: Names of the C classes.
        truth: True classes of the M held-out images, shape (M,).
        scores: Their scores before calibration, shape (M, C).
        names: Their names.
        images: The held-out images, in the order of the other attributes.
        trained_on: Number of readable labelled training images.
    """

    folder: Path
    classes: tuple[str, ...]
    truth: Tensor
    scores: Tensor
    names: list[str]
    images: Any
    trained_on: int

    @property
    def probabilities(self) -> Tensor:
        """Probabilities of shape (M, C), calibrated unless `uncalibrated` says why not. The temperature of each half of
        the images is fitted on the other half; that of the classifier on all."""
        return self.scores.softmax(dim=1) if self.uncalibrated else self._apart

    @cached_property
    def _apart(self) -> Tensor:
        return calibrated_apart(self.scores, self.truth)

    @cached_property
    def uncalibrated(self) -> str:
        """Why probabilities are not calibrated; empty if they are."""
        if len(self.truth) < FEWEST:
            return "too few held-out images to calibrate the probabilities"
        before, after = (log_loss(p, self.truth) for p in (self.scores.softmax(dim=1), self._apart))
        return "" if after < before else "no temperature improves the probabilities of held-out images"

    @property
    def temperature(self) -> float | None:
        """By what the classifier divides its scores; None if they are not calibrated."""
        return None if self.uncalibrated else fit_temperature(self.scores, self.truth)

    @property
    def predicted(self) -> Tensor:
        """The most probable classes, shape (M,)."""
        return self.scores.argmax(dim=1)

    @property
    def accuracy(self) -> Accuracy:
        """Top-1 and top-5 accuracy in per cent."""
        return accuracy(self.scores, self.truth)

    @property
    def chance(self) -> float:
        """Accuracy in per cent of always answering with the most frequent class."""
        return chance_of(self.truth)

    @property
    def interval(self) -> tuple[float, float]:
        """95 % interval of the top-1 accuracy in per cent (Wilson's), for other images of this kind."""
        from scipy.stats import binomtest

        right = int((self.predicted == self.truth).sum())
        found = binomtest(right, len(self.truth)).proportion_ci(method="wilson")
        return 100 * float(found.low), 100 * float(found.high)

    @property
    def confusion(self) -> Tensor:
        """Numbers of images by true class (rows) and predicted class (columns), shape (C, C)."""
        n = len(self.classes)
        return (self.truth * n + self.predicted).bincount(minlength=n * n).view(n, n)

    @property
    def reliability(self) -> Reliability:
        """Confidence and accuracy in bins, after calibration."""
        return reliability(self.probabilities, self.truth)

    @property
    def reliability_before(self) -> Reliability:
        """Confidence and accuracy in bins, before calibration."""
        return reliability(self.scores.softmax(dim=1), self.truth)

    def mistakes(self, count: int) -> list[Mistake]:
        """The wrong predictions with the highest probabilities.

        Args:
            count: Most mistakes to return.
        """
        wrong = (self.predicted != self.truth).nonzero()[:, 0]
        sure = self.probabilities[wrong, self.predicted[wrong]]
        return [
            Mistake(n, self.names[n], self.classes[self.truth[n]], self.classes[self.predicted[n]], float(p))
            for n, p in ((int(wrong[place]), sure[place]) for place in sure.argsort(descending=True)[:count].tolist())
        ]


def classify(
    source: str | Path | Run,
    out: str | Path | None = None,
    *,
    head: Kind = "linear",
    data: Any = None,
    labels: str | None = None,
    holdout: Holdout | None = None,
    pretrained: bool = True,
    size: int | None = None,
    epochs: int = 30,
    lr: float = 0.05,
    seed: int = 0,
    workers: int | None = None,
    device: str | torch.device = "auto",
    trust: bool = False,
    progress: bool = False,
) -> Classified:
    """Make a classifier of an encoder and labelled images, and measure it on held-out images.

    The folder is an exported encoder with a head: `hs.load(folder).predict(images)` returns labels and probabilities,
    and `hypersphere predict` and `hypersphere export --format onnx` take it.

    Args:
        source: A run or its folder, a folder that `export` or `classify` wrote, or a model such as "timm/resnet18".
        out: Folder to write, new or empty, or with an earlier classifier. By default `classifier` in the folder of the
            source.
        head: "linear" fits logistic regression on the features of the frozen encoder; its regularization, and whether
            features are normalized, are chosen on a fifth of the training images. "finetune" trains the whole network
            with a linear head on random crops.
        data: Labelled images: a folder, a name, arrays, a dataset object, as in `hs.pretrain`. By default those of the
            run.
        labels: CSV file with the labels of a folder's images.
        holdout: Held-out images to measure on, "validation" or "test". By default those of the run, or "validation".
        pretrained: Whether a model of a library has its published weights.
        size: Side of a library model's input in pixels. By default that of its published weights.
        epochs: Epochs of "finetune".
        lr: Learning rate of "finetune" for a batch of 256.
        seed: Seed of "finetune".
        workers: Processes that read images. None: chosen from the number of cores.
        device: Device such as "cpu" or "cuda:1". By default a GPU if there is one.
        trust: Whether to import and run code that the source names. What you made does not need it.
        progress: Whether to show progress.

    Returns:
        The folder, and how the classifier does on the held-out images: `.accuracy`, `.interval`, `.confusion`.

    Raises:
        UserError: If there is no such encoder, or the images have no labels.

    Example:
        >>> import hypersphere as hs
        >>> run = hs.pretrain("byol", data="digits", epochs=1, batch=256, hidden=8, knn_every=0, progress=False)
        >>> found = hs.classify(run)
        >>> found.accuracy.top1 > 50
        True
        >>> images = hs.data.load_data("digits")[1].pixels[:5]
        >>> predicted = hs.load(found.folder).predict(images)
        >>> len(predicted.labels), predicted.probabilities.shape
        (5, torch.Size([5, 10]))
    """
    if head not in get_args(Kind):
        raise UserError(f"`head` must be one of {', '.join(get_args(Kind))}, got {head!r}")
    found = resolve_source(source, device, pretrained=pretrained, size=size, trust=trust)
    folder = found.folder if out is None else Path(out)
    check_replaceable(folder, classifier=True)
    holdout = holdout or (found.run.config.holdout if found.run else "validation")
    dataset, split = _labelled_split(found, data, labels, holdout, workers)
    train, held_out = _loaders(found.loaded.preprocess, dataset, split, found.loaded.device, seed, progress)
    make_folder(folder)
    encoder = found.loaded.encoder
    features, train = _readable(train, encoder, dataset.name)
    if head == "finetune":
        config = found.run.config if found.run else Config()
        encoder, linear = _fine_tuned(encoder, train, config, epochs, lr, seed, progress)
    else:
        linear = fit_head(_finite(features), train.labels, len(train.classes))
    queries, samples = features_and_samples(held_out, encoder)
    images = held_out.images
    classified = Classified(
        folder,
        train.classes,
        held_out.labels[samples].cpu(),
        linear.scores(_finite(queries)).cpu(),
        images.names(samples),
        images[samples.to(images.labels.device)],
        len(train),
    )
    about = {"head": head, "decay": linear.decay, "data": dataset.name, "holdout": holdout}
    if head == "finetune":
        about |= {"epochs": epochs, "lr": lr, "seed": seed}
        found.card["metrics"] = {}  # are those of the encoder before
    _write(classified, found.card, plain(encoder), linear, about)
    unreadable = {**dataset.unreadable_folders(split), **train.unreadable, **held_out.unreadable}
    replace_unreadable(unreadable, folder / UNREADABLE)
    return classified


def _labelled_split(
    source: EncoderSource, data: Any, labels: str | None, holdout: Holdout, workers: int | None
) -> tuple[Dataset, Split]:
    """The dataset with its training and held-out images, after checking that they have labels."""
    if data is None and source.run is None:
        raise UserError("`data` is missing: pass labelled images, such as a folder with a subfolder for each class")
    if data is None and labels is None:
        assert source.run is not None
        dataset = source.run.dataset
        split = dataset.split(holdout, source.run.path)
    else:
        preprocess, config = source.loaded.preprocess, source.run.config if source.run else Config()
        where = config.data if data is None else data
        spec = DataSpec(
            "",
            holdout,
            labels,
            white=preprocess.white,
            mean=preprocess.mean,
            std=preprocess.std,
            size=preprocess.size,
            root=config.root,
            workers=workers,
        )
        dataset = dataset_of(where, spec)
        if not dataset.takes_root(begun=False):
            dataset = dataset_of(where, replace(spec, root=None))
        dataset.check_options()
        split = dataset.split(holdout)
    if not split.train.classes or not split.apart:
        how = "pass a folder with a subfolder for each class, or a CSV file of `labels`"
        raise UserError(f"{dataset.name} has no labels, which a classifier needs: {how}")
    return dataset, split


def _loaders(
    preprocess: Preprocess, dataset: Dataset, split: Split, device: torch.device, seed: int, progress: bool
) -> tuple[Any, Any]:
    """Loaders of the labelled training and held-out images, which show them as `predict` does."""
    pipeline = preprocess.pipeline(dataset.pipeline(preprocess.size).probe)
    channels, side, cache = len(preprocess.mean), preprocess.side, dataset.options.cache
    loaders = []
    for images in split:
        unreadable: Unreadable = {}
        if images.channels != channels:
            decoded = images.decoded(side, dataset.workers, len(images), unreadable=unreadable)
            images = decoded.in_channels(channels)
        loader = images.squared(side).loader(pipeline, seed, device, dataset.workers, progress, cache)
        loader.unreadable.update(unreadable)
        loaders.append(loader.labelled)
    train, held_out = loaders
    if not len(train) or not len(held_out):
        raise UserError(f"{dataset.name} has {len(train)} training and {len(held_out)} held-out images with labels")
    return train, held_out


def _readable(train: Any, encoder: nn.Module, name: str) -> tuple[Tensor, Any]:
    """Features of the readable training images, and a loader of these images."""
    features, seen = features_and_samples(train, encoder)
    readable = train if len(seen) == len(train) else train[seen]
    if len(readable.labels.unique()) < 2:
        lost = f" ({pluralize(len(train.unreadable), 'image')} cannot be read)" if train.unreadable else ""
        raise UserError(f"{name} has labelled images of one class only{lost}: a classifier needs two")
    warn_of_lost_classes(train.labels, readable.labels, train.classes)
    return features, readable


def _fine_tuned(
    encoder: nn.Module, train: Any, config: Config, epochs: int, lr: float, seed: int, progress: bool
) -> tuple[nn.Module, LinearHead]:
    how = evaluation_execution(config, train.labels.device)
    with how.applied(), progress_bar("fine-tuning", epochs, show=progress) as bar:
        options: Any = {"lr": lr, "seed": seed, "precision": how.precision, "after_epoch": bar.update}
        network = tuned_copy(encoder.to(memory_format=how.layout), train, epochs=epochs, **options)
    return network.encoder.eval().requires_grad_(False), LinearHead(network.weight.detach(), network.bias.detach())


def _finite(features: Tensor) -> Tensor:
    if bad := int((~features.isfinite().all(dim=1)).sum()):
        raise UserError(f"{bad} of {len(features)} images have features of NaN or infinity: did the run diverge?")
    return features


def _write(
    found: Classified, card: dict[str, Any], encoder: nn.Module, linear: LinearHead, about: dict[str, Any]
) -> None:
    """Write the folder: weights, the head with its temperature, and the card, which comes last."""
    temperature = found.temperature
    divisor = temperature or 1.0
    calibrated = LinearHead(linear.weight.cpu() / divisor, linear.bias.cpu() / divisor, linear.normalized)
    blobs = {WEIGHTS: weights_as_bytes(encoder), HEAD: Head(calibrated, found.classes).as_bytes()}
    sha256 = {name: hashlib.sha256(blob).hexdigest() for name, blob in blobs.items()}
    card["weights"] = {"file": WEIGHTS, "sha256": sha256[WEIGHTS]}
    card["classifier"] = {
        "file": HEAD,
        "sha256": sha256[HEAD],
        "classes": list(found.classes),
        "normalized": linear.normalized,
        "temperature": temperature,
        "training_images": found.trained_on,
        **about,
        "held_out": {
            "images": len(found.truth),
            **found.accuracy._asdict(),
            "interval": list(found.interval),
            "calibration_error": found.reliability.error,
            "calibration_error_before": found.reliability_before.error,
        },
    }
    folder = found.folder
    with put_in_place(folder / CARD, alone=True) as scratch:
        if (derived := folder / CLASSIFIER_ONNX).exists():
            derived.unlink()
            again = f"hypersphere export {shlex.quote(str(folder))} --format onnx"
            notify(f"removed {derived}, made of the classifier before this one; to write it again: {again}")
        for name, blob in blobs.items():
            write_atomically(folder / name, blob)
        scratch.write_bytes(as_json(card))
    remember_own_file(folder / CARD)
