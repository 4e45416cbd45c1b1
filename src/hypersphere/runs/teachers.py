"""The frozen teacher of `distill`: a run, an exported encoder, or a pretrained model of torchvision or timm."""

import os
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hypersphere.config import Config, code_named_in
from hypersphere.errors import UserError
from hypersphere.nn import build_encoder, features_of
from hypersphere.nn.libraries import check_model, model_name, pretrained_model
from hypersphere.nn.weights import CARD, WEIGHTS, load_tensors, read_weights
from hypersphere.runs.build import view_pipeline
from hypersphere.util.console import notify
from hypersphere.util.records import read_record
from hypersphere.util.run_files import CHECKPOINT, RUN_RECORD, is_run
from hypersphere.util.trust import check_code
from hypersphere.views import ViewPipeline, folder_pipeline


class _Input(TypedDict):
    mean: list[float]
    std: list[float]


class _Card(TypedDict):
    """What is read of card.json."""

    encoder: str
    architecture: dict[str, Any]
    input: _Input


class _RunRecord(TypedDict):
    """What is read of run.json."""

    config: dict[str, Any]


class Teacher(nn.Module):
    """An encoder that sees the student's views: normalized, and perhaps resized, as it was trained.

    Args:
        encoder: The encoder, whose features are `num_features` numbers.
        theirs: Mean and standard deviation of each channel that the encoder expects.
        ours: Those of the student's views.
        size: Side in pixels of the encoder's input. None: that of the views.
    """

    scale: Tensor
    shift: Tensor

    def __init__(
        self,
        encoder: nn.Module,
        theirs: tuple[tuple[float, ...], tuple[float, ...]],
        ours: tuple[tuple[float, ...], tuple[float, ...]],
        size: int | None = None,
    ) -> None:
        super().__init__()
        self.encoder, self.size, self.num_features = encoder, size, features_of(encoder)
        (mean, std), (our_mean, our_std) = (torch.tensor(pair).view(2, 1, -1, 1, 1) for pair in (theirs, ours))
        self.register_buffer("scale", our_std / std)
        self.register_buffer("shift", (our_mean - mean) / std)

    def forward(self, views: Tensor) -> Tensor:
        if self.size is not None and views.shape[-1] != self.size:
            views = F.interpolate(views, size=(self.size, self.size), mode="bicubic", antialias=True)
        return self.encoder(views * self.scale + self.shift)  # a grey view becomes one of three equal channels


class _Source(NamedTuple):
    """Where a teacher's architecture, normalization and weights come from."""

    encoder: str
    architecture: dict[str, Any]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    weights: Path | None  # None: those of the model's library

    def build(self, pretrained: bool) -> nn.Module:
        encoder = build_encoder(self.encoder, **self.architecture)
        if pretrained:
            load_tensors(encoder, self._published(encoder), f"`teacher` {self.weights or self.encoder}")
        return encoder

    def _published(self, encoder: nn.Module) -> dict[str, Tensor]:
        if self.weights is None:
            return pretrained_model(self.encoder, like=encoder).state_dict()
        return read_weights(self.weights)


def load_teacher(name: str, ours: ViewPipeline, size: int | None) -> Teacher:
    """Load the teacher of a run, for views of the student's pipeline.

    Raises:
        UserError: If there is no such teacher, or it is for images with other channels.
    """
    source = _source(name)
    if len(source.mean) not in (3, len(ours.mean)):
        raise UserError(f"`teacher` {name} is for images of {len(source.mean)} channels, not {len(ours.mean)}")
    teacher = Teacher(source.build(pretrained=True), (source.mean, source.std), (ours.mean, ours.std), size)
    notify(f"the teacher is {name}: {source.encoder}, {teacher.num_features} features")
    return teacher


@cache
def teacher_width(name: str) -> int:
    """Return the number of a teacher's features, without reading its weights."""
    with torch.device("meta"):
        return features_of(_source(name).build(pretrained=False))


def with_teacher(config: Config) -> Config:
    """Return the config as a run keeps it: the teacher's folder in full, and the width of its features."""
    name = getattr(config, "teacher", None)
    if name is None:
        return config
    if model_name(name) is None:
        name = os.path.abspath(os.path.expanduser(name))
    width = config.teacher_features or teacher_width(name)  # type: ignore[attr-defined]
    return config.replace(teacher=name, teacher_features=width)


def teacher_options(config: Config) -> dict[str, Any]:
    """Return what `Distill` gets instead of the name of its teacher."""
    name = getattr(config, "teacher", None)
    if name is None:
        return {}
    size = config.teacher_size  # type: ignore[attr-defined]
    return {"teacher": partial(load_teacher, name, view_pipeline(config), size)}


def _source(name: str) -> _Source:
    model = model_name(name)
    if model is not None:
        check_model(model)
        return _Source(model, {}, *_normalization(model), None)
    folder = Path(name)
    if is_run(folder):
        return _of_run(folder)
    if (folder / CARD).is_file():
        return _of_export(folder)
    expected = "the folder of a run, one that hypersphere export wrote, torchvision/NAME or timm/NAME"
    raise UserError(f"`teacher` {name} was not found: expected {expected}")


def _normalization(model: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation that a pretrained model expects."""
    if model.startswith("timm/"):
        import timm

        known = timm.get_pretrained_cfg(model.removeprefix("timm/"))
        if known is not None:
            return tuple(known.mean), tuple(known.std)
    usual = folder_pipeline(224)
    return usual.mean, usual.std


def _of_run(folder: Path) -> _Source:
    file, weights = folder / RUN_RECORD, folder / CHECKPOINT
    saved = read_record(file, _RunRecord)["config"]
    check_code(file, code_named_in(saved))
    config = Config.from_json(saved)
    if not weights.is_file():
        raise UserError(f"`teacher` {folder} has no checkpoint yet")
    views = view_pipeline(config)
    same = {name: getattr(config, name) for name in ("stem", "norm", "dimensions")}
    built_for = {"channels": len(views.mean), "size": views.size}
    return _Source(config.encoder, {**built_for, **same}, views.mean, views.std, weights)


def _of_export(folder: Path) -> _Source:
    file = folder / CARD
    card = read_record(file, _Card)
    check_code(file, {"encoder": card["encoder"]})
    known = card["input"]
    return _Source(card["encoder"], card["architecture"], tuple(known["mean"]), tuple(known["std"]), folder / WEIGHTS)
