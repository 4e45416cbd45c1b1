"""hypersphere classify: make a classifier of an encoder and labelled images."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import Positional, arg

from hypersphere.cli.next_step import print_next
from hypersphere.cli.parsing import parse

if TYPE_CHECKING:
    from hypersphere.inference.classifying import Classified

PAGE = "report.html"


@dataclasses.dataclass(frozen=True)
class ClassifyOptions:
    """Write a classifier: an exported folder with a head on the encoder, for predict, export and hs.load.

    It is measured on held-out images. report.html in the folder shows its confusion matrix, its calibration and its
    most confident mistakes."""

    encoder: Annotated[str, Positional, arg(metavar="RUN")]
    """Folder of a run, or one that export or classify wrote; or a model of a library, such as timm/resnet18."""
    out: Annotated[Path | None, arg(aliases=["-o"])] = None
    """Folder to write to. None: `classifier` in the folder of the run or export; of a model, in runs."""
    head: Literal["linear", "finetune"] = "linear"
    """linear: logistic regression on the features of the frozen encoder. finetune: train the whole network."""
    data: str | None = None
    """Labelled images: a folder, a dataset or arrays. None: those of the run."""
    labels: str | None = None
    """CSV file with the labels of a folder's images (columns path, label)."""
    holdout: Literal["validation", "test"] | None = None
    """Images to measure on. None: those that the run held out, else validation."""
    pretrained: bool = True
    """Use the weights that a library publishes for its model."""
    size: int | None = None
    """Side in pixels of the input of a library's model. None: that of its published weights."""
    epochs: int = 30
    """Epochs of --head finetune."""
    lr: float = 0.05
    """Learning rate of --head finetune, for a batch of 256."""
    seed: int = 0
    """Seed of --head finetune."""
    workers: int | None = None
    """Processes that decode image files. None: one per core if there is a GPU, else none."""
    device: str = "auto"
    """Device, such as cpu or cuda:1. auto: the GPU if there is one."""
    trust: bool = False
    """Import and run code that RUN names: its author's own method, encoder or data. What you made does not need it."""


def run(words: Sequence[str]) -> None:
    options = parse("classify", ClassifyOptions, words)
    from hypersphere.inference.classifying import classify
    from hypersphere.inference.exporting import files_of
    from hypersphere.report.classifier import write_classifier_page

    given = {name: value for name, value in vars(options).items() if name not in ("encoder", "out")}
    found = classify(options.encoder, options.out, progress=True, **given)
    _print_classified(found)
    write_classifier_page(found.folder / PAGE, found)
    print(f"written to {found.folder}: {', '.join([*files_of(found.folder), PAGE])}")
    print_next("predict", found.folder, "IMAGES", "-o", "predictions.csv")


def _print_classified(found: "Classified") -> None:
    low, high = found.interval
    of = f"{len(found.truth):,} held-out images of {len(found.classes)} classes, {found.trained_on:,} for training"
    chance = f"{found.chance:.1f} % for always the same answer"
    print(f"accuracy {found.accuracy.top1:.2f} % (95 % interval {low:.1f} to {high:.1f}; {chance}): {of}")
    before, after = 100 * found.reliability_before.error, 100 * found.reliability.error
    if found.uncalibrated:
        print(f"calibration error {before:.1f} points; {found.uncalibrated}")
    else:
        print(f"calibration error {after:.1f} points ({before:.1f} before the temperature was fitted)")
