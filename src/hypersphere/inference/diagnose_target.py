"""Resolve what `diagnose` examines, a run, checkpoint, module or model name, to an encoder and images to show it."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hypersphere.config import Config, recipe
from hypersphere.data import Dataset, DataSpec, Images
from hypersphere.data.file_datasets import FILES
from hypersphere.data.loader import center_view
from hypersphere.data.splits import evenly
from hypersphere.errors import UserError, did_you_mean, first_line
from hypersphere.evaluate.features import frozen
from hypersphere.inference.library_models import normalized_as_stated, stated_by_timm
from hypersphere.inference.loading import load, read_card
from hypersphere.nn import build_encoder
from hypersphere.nn.blocks import features_in
from hypersphere.nn.encoders import ENCODERS
from hypersphere.nn.libraries import build_model, model_name, pretrained_model
from hypersphere.nn.weights import CARD, HUB_WEIGHTS, WEIGHTS, exported_weights, load_weights
from hypersphere.regularize.selection import PARALLEL
from hypersphere.runs.build import view_pipeline
from hypersphere.runs.machine import pick_device
from hypersphere.runs.run import Run, check_images, load_run, read_config, with_root
from hypersphere.util.references import is_reference
from hypersphere.util.run_files import CHECKPOINT, RUN_RECORD, is_run
from hypersphere.util.trust import is_trusted
from hypersphere.views import ViewPipeline, Views, folder_pipeline

CHECKPOINTS = (".pt", ".pth", ".ckpt", ".safetensors")
AT_ONCE = 64


@dataclass(frozen=True)
class DiagnoseOptions:
    """Options of `diagnose`; None chooses a default that fits the encoder."""

    data: str | Tensor | None = None  # name of a dataset, or uint8 images (N, C, H, W)
    encoder: str | None = None  # architecture of a checkpoint
    pretrained: bool = False
    images: int | None = None  # number of images
    size: int | None = None  # side of the encoder's input, in pixels
    root: Path | None = None
    device: str | torch.device = "auto"
    trust: bool = False  # whether code and paths that the target names may be used

    def __post_init__(self) -> None:
        if isinstance(self.data, str | os.PathLike):
            object.__setattr__(self, "data", Dataset.resolve(DataSpec(os.fspath(self.data), root=self.root)).name)
        for name, least in (("images", 2), ("size", 1)):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, Integral) and int(value) >= least):
                raise UserError(f"`{name}` must be a whole number of at least {least}, got {value!r}")


class ShownImages(NamedTuple):
    """Images that are shown to an encoder."""

    pixels: Tensor  # (N, C, H, W), uint8
    recipe: ViewPipeline
    description: str  # for the title


class Subject(NamedTuple):
    """An encoder and the images that are shown to it."""

    title: str
    encoder: nn.Module
    parts: dict[str, nn.Module]  # networks whose weights are examined
    pixels: Tensor
    recipe: ViewPipeline
    channels: int  # of the encoder's input
    side: int  # of the encoder's input, in pixels

    def fitted(self, view: Tensor) -> Tensor:
        """Fit a view to the encoder: repeat a grey channel, resize, and convert to its dtype."""
        view = view.expand(-1, self.channels, -1, -1) if view.shape[1] == 1 else view
        if view.shape[2] != self.side:
            view = F.interpolate(view, self.side, mode="bilinear", antialias=True)
        return view.to(_weight(self.encoder).dtype)

    def features(self, view: Tensor) -> Tensor:
        """Features of a fitted view, shape (B, D)."""
        return features_in(self.encoder(view))

    def views(self) -> Iterator[tuple[Tensor, ...]]:
        """Batches of (center crop, first random view, second random view)."""
        views, middle = Views(self.recipe, 0), center_view(self.recipe)
        for sample in torch.arange(len(self.pixels), device=self.pixels.device).split(AT_ONCE):
            made = (middle(self.pixels[sample]), *views.training(self.pixels, sample, 0)[:2])
            yield tuple(self.fitted(view) for view in made)


def resolve_subject(target: str | Path | Run | nn.Module, options: DiagnoseOptions) -> Subject:
    """The encoder that `target` means, and the images to show it.

    Raises:
        UserError: If the target is unknown or damaged, or if an option does not fit it.
    """
    if isinstance(target, str | Path) and (run := _folder_with(RUN_RECORD, Path(target), CHECKPOINT)):
        target = load_run(run, options.device, trust=options.trust)
    if isinstance(target, Run):
        return _of_run(target, options)
    if isinstance(target, str | Path) and (exported := _exported(Path(target), options)):
        return _of_exported(exported, options)
    if isinstance(target, nn.Module):
        encoder = _unwrapped(target)
        title = type(encoder).__name__
    else:
        encoder, title = _named(str(target), options)
        encoder.to(pick_device(options.device))
    config, channels = recipe("byol", "digits", root=options.root), _channels(encoder, options.data)
    shown = _images_to_show(config, options, options.images or 256, _like_photographs(options.data, channels))
    shown = shown._replace(recipe=normalized_as_stated(encoder, shown.recipe))
    return _make_subject(title, encoder, {"encoder": encoder}, shown, channels, _sides(encoder, options))


def _unwrapped(network: nn.Module) -> nn.Module:
    """The module inside torch.compile, DataParallel and DistributedDataParallel."""
    while inside := getattr(network, "_orig_mod", None) or (isinstance(network, PARALLEL) and network.module):
        network = inside
    return network


def _of_run(run: Run, options: DiagnoseOptions) -> Subject:
    config = _located(run.config, options)
    own = view_pipeline(config)
    parts = {name: part for name, part in run.method.named_children() if _learns(part)}
    title = f"{run.config.title}, step {run.step} of {run.path}"
    if options.data is None and options.root is None:
        check_images(run.dataset, run.path / RUN_RECORD, run.path / FILES)
    shown = _images_to_show(config, options, options.images or 2000, own, run.path)
    return _make_subject(title, run.encoder, parts, shown, len(own.mean), (options.size or own.size,))


def _located(config: Config, options: DiagnoseOptions) -> Config:
    """The config with `options.root`, which is that of its own data or of `options.data`."""
    if options.data is None:
        return with_root(config, options.root)
    return config.replace(root=options.root or config.root)


def _folder_with(known: str, path: Path, *names: str) -> Path | None:
    """The folder with the file `known`; `path` is the folder, or one of the files `names` in it."""
    folder = path.parent if path.name in names else path
    return folder if (folder / known).is_file() else None


def _exported(path: Path, options: DiagnoseOptions) -> Path | None:
    """The exported folder that `path` means; None if the option `encoder` names another architecture."""
    return None if options.encoder is not None else _folder_with(CARD, path, WEIGHTS, HUB_WEIGHTS, CARD)


def _of_exported(folder: Path, options: DiagnoseOptions) -> Subject:
    loaded = load(folder, options.device, trust=options.trust)
    about = read_card(folder / CARD).get("run")
    if about is None:
        raise UserError(f"{folder / CARD} has no config of a run: pass {exported_weights(folder)} and `encoder`")
    config = Config.from_json(about["config"])
    config, run = _located(config.replace(root=None), options), folder.absolute().parent
    whole = (run / FILES).is_file() and is_run(run) and is_trusted(run / RUN_RECORD, run / FILES)
    listed = whole and read_config(run).hash == about["hash"]
    if options.data is None and not listed:
        dataset = Dataset.resolve(config)
        if options.root is None:
            check_images(dataset, folder / CARD)
        dataset.check_present(folder)
        data, root = dataset.relocated()
        config = config.replace(data=data, root=root)
    own = view_pipeline(config)
    shown = _images_to_show(config, options, options.images or 2000, own, run if listed else None)
    parts, sides = {"encoder": loaded.encoder}, (options.size or own.size,)
    return _make_subject(f"{folder}", loaded.encoder, parts, shown, len(own.mean), sides)


def _images_to_show(
    config: Config, options: DiagnoseOptions, n: int, like: ViewPipeline, run: Path | None = None
) -> ShownImages:
    """At most `n` images of `options.data`, or else the held-out images of the config."""
    if isinstance(options.data, Tensor):
        return _given(options.data, n, like)
    if options.data not in (None, config.data):
        own = {"mean": like.mean, "std": like.std} if len(like.mean) != 3 else {}  # which the images are read with
        config, run = recipe("byol", options.data or "", root=config.root, white=config.white, **own), None
    dataset = Dataset.resolve(config)
    split = dataset.split(config.holdout, run)
    _, images = dataset.in_memory(split, (2, n))
    known = run is not None or dataset.has_recipe  # whether it is known which images were held out
    kind = ("held-out " if split.apart else "training ") if known else ""
    pixels = images.pixels
    return ShownImages(pixels[evenly(len(pixels), n)], view_pipeline(config), f"{kind}images of {config.data}")


def _like_photographs(data: str | Tensor | None, channels: int) -> ViewPipeline:
    """The recipe for a user's images, at their size."""
    usual = folder_pipeline(min(data.shape[2:]) if isinstance(data, Tensor) else 224)
    return usual if channels == 3 else replace(usual, mean=(0.449,) * channels, std=(0.226,) * channels)


def _given(images: Tensor, n: int, like: ViewPipeline) -> ShownImages:
    """At most `n` of the user's images, evenly spaced, in the channels of the recipe `like`; of any size."""
    chosen = images[evenly(len(images), n).to(images.device)]
    pixels = Images(chosen, torch.empty(0), ()).in_channels(len(like.mean)).pixels
    of_any_size = folder_pipeline(like.size)
    return ShownImages(pixels, replace(like, resize=of_any_size.resize, crop=of_any_size.crop), "given images")


def as_bytes(images: Tensor) -> Tensor:
    """A user's images of shape (N, C, H, W), uint8 or floats from 0 to 1, as uint8."""
    shape = f"{images.dtype} of shape {tuple(images.shape)}"
    if images.ndim != 4 or len(images) < 2:
        raise UserError(f"`data` must be a name, or at least two images N × C × H × W, got {shape}")
    if images.dtype == torch.uint8:
        return images
    if not images.is_floating_point() or not (images.min() >= 0 and images.max() <= 1):
        raise UserError(f"`data` must be uint8, or floats from 0 to 1 that are not normalized, got {shape}")
    return (255 * images.float()).round().byte()


def _make_subject(
    title: str,
    encoder: nn.Module,
    parts: dict[str, nn.Module],
    shown: ShownImages,
    channels: int,
    sides: Sequence[int] = (),
) -> Subject:
    """The subject, at the first of `sides` that the encoder accepts; without `sides`, at that of the recipe."""
    pixels, views = shown.pixels.to(_weight(encoder).device), shown.recipe
    if pixels.shape[1] not in (1, channels):
        raise UserError(
            f"{title} takes images with {channels} channel(s), but {shown.description} have {pixels.shape[1]}"
        )
    side = _accepted_side(Subject(title, encoder, parts, pixels, views, channels, 0), sides or (views.size,))
    return Subject(f"{title}: {len(pixels):,} {shown.description}", encoder, parts, pixels, views, channels, side)


def _accepted_side(subject: Subject, sides: Sequence[int]) -> int:
    """The first side at which the encoder accepts images."""
    sample, problems = center_view(subject.recipe)(subject.pixels[:2]), list[Exception]()
    for side in sides:
        try:
            with frozen(subject.encoder):
                subject.features(subject._replace(side=side).fitted(sample))
            return side
        except Exception as problem:  # an unknown network may raise anything
            problems.append(problem)
    shape = f"{subject.channels} × {sides[0]} × {sides[0]}"
    refused = f"{subject.title} does not take {shape} images ({first_line(problems[0])})"
    raise UserError(f"{refused}: pass the `size` that it takes") from problems[0]


def _learns(part: nn.Module) -> bool:
    return any(parameter.requires_grad for parameter in part.parameters())


def _weight(network: nn.Module) -> Tensor:
    """Any weight, for its device and dtype."""
    return next((weight for weight in network.parameters() if weight.is_floating_point()), torch.zeros(0))


def _stem(network: nn.Module) -> nn.Conv2d | None:
    return next((layer for layer in network.modules() if isinstance(layer, nn.Conv2d)), None)


def _channels(network: nn.Module, data: str | Tensor | None) -> int:
    """Input channels of the first convolution; without one, those of the images."""
    if (stem := _stem(network)) is not None:
        return stem.in_channels
    return data.shape[1] if isinstance(data, Tensor) else 3


def _sides(network: nn.Module, options: DiagnoseOptions) -> tuple[int, ...]:
    """Input sides to try, in order; empty to use the side of the chosen data.

    By default digits are shown, which can have any size. A strided first convolution with three channels indicates a
    network for photographs; others are for small images.
    """
    if side := options.size or _own_side(network):
        return (side,)
    if options.data is not None:
        return ()
    stem = _stem(network)
    large = stem is not None and stem.in_channels == 3 and max(stem.stride) > 1
    return (224, 32, 8) if large else (32, 224, 8)


def _own_side(network: nn.Module) -> int | None:
    """The side that the network itself states: ours, timm, ViTs of torchvision, Hugging Face."""
    timm = stated_by_timm(network)
    stated = (
        getattr(network, "input_size", None),
        getattr(getattr(network, "patch_embed", None), "img_size", None),
        timm.get("input_size"),
        getattr(network, "image_size", None),
        getattr(getattr(network, "config", None), "image_size", None),
    )
    side = next((found for found in stated if found is not None), None)
    return side[-1] if isinstance(side, Sequence) else side


def _named(target: str, options: DiagnoseOptions) -> tuple[nn.Module, str]:
    """(encoder, title) of a checkpoint, or of a model by name."""
    path = Path(target)
    if path.suffix not in CHECKPOINTS:
        title = f"{model_name(target) or target}, {'pretrained' if options.pretrained else 'randomly initialized'}"
        return _model(target, options.pretrained), title
    if not path.is_file():
        raise UserError(f"file not found: {path}")
    if options.encoder is None:
        raise UserError(f"{path} is a checkpoint: pass its architecture as `encoder`, such as torchvision/resnet50")
    encoder = _model(options.encoder, False)
    load_weights(encoder, path)
    return encoder, f"{path} ({options.encoder})"


def _model(name: str, pretrained: bool) -> nn.Module:
    if name.startswith("hypersphere/") or is_reference(name):
        return build_encoder(name, channels=1 if name == "hypersphere/digits" else 3)
    whole = model_name(name)
    if whole is None:
        if Path(name).exists():
            raise UserError(f"{name} is not a run, a checkpoint ({', '.join(CHECKPOINTS)}) or a file of embeddings")
        kinds = "a run's folder, a checkpoint, a file of embeddings, or a model such as torchvision/resnet18"
        names = [*ENCODERS, *(encoder.partition("/")[2] for encoder in ENCODERS)]
        raise UserError(f"unknown target {name!r}{did_you_mean(name, names)}: pass {kinds}")
    return pretrained_model(whole) if pretrained else build_model(whole)
