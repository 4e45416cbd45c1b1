"""An encoder and the images it is shown, from whatever names one: a run, a checkpoint, a model of a library."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hypersphere.build import view_recipe
from hypersphere.config import Config, recipe
from hypersphere.errors import UserError, similar
from hypersphere.evaluate import centre
from hypersphere.loading import CARD, WEIGHTS, load, read_card
from hypersphere.machine import pick_device
from hypersphere.nn import build_encoder
from hypersphere.nn.encoders import ENCODERS
from hypersphere.nn.weights import load_weights
from hypersphere.nn.zoo import build_model, model_name
from hypersphere.run import Run, load_run
from hypersphere.sets import images_of
from hypersphere.views import Recipe, Views
from hypersphere.written import is_reference

CHECKPOINTS = (".pt", ".pth", ".ckpt", ".safetensors")
AT_ONCE = 64


@dataclass(frozen=True)
class Wishes:
    """What may be said beside the name; None: as fits."""

    data: str | None = None
    encoder: str | None = None  # of a checkpoint
    pretrained: bool = False
    images: int | None = None
    root: Path | None = None
    device: str = "auto"


class Subject(NamedTuple):
    title: str
    encoder: nn.Module
    parts: dict[str, nn.Module]  # networks whose weights are looked at
    pixels: Tensor
    recipe: Recipe
    channels: int  # of the encoder's input, and its side in pixels
    side: int

    def fitted(self, view: Tensor) -> Tensor:
        """As the encoder takes it: grey images as equal channels, others enlarged or made smaller."""
        view = view.expand(-1, self.channels, -1, -1) if view.shape[1] == 1 else view
        return view if view.shape[2] == self.side else F.interpolate(view, self.side, mode="bilinear", antialias=True)

    def views(self) -> Iterator[tuple[Tensor, ...]]:
        """Piece by piece: the middle of each image, and two views of it."""
        views, middle = Views(self.recipe, 0), centre(self.recipe)
        for sample in torch.arange(len(self.pixels), device=self.pixels.device).split(AT_ONCE):
            made = (middle(self.pixels[sample]), *views.training(self.pixels, sample, 0)[:2])
            yield tuple(self.fitted(view) for view in made)


def subject_of(target: str | Path | Run | nn.Module, wishes: Wishes) -> Subject:
    if isinstance(target, str | Path) and (run := _folder_with("run.json", Path(target), "checkpoint.pt")):
        target = load_run(run, wishes.device)
    if isinstance(target, Run):
        return _of_run(target, wishes)
    if isinstance(target, str | Path) and (exported := _exported(Path(target), wishes)):
        return _of_exported(exported, wishes)
    encoder, title = (target, type(target).__name__) if isinstance(target, nn.Module) else _named(str(target), wishes)
    if not isinstance(target, nn.Module):
        encoder.to(pick_device(wishes.device))
    config = recipe("byol", wishes.data or "digits", root=wishes.root)
    side = getattr(encoder, "input_size", None)
    return _shown(title, encoder, {"encoder": encoder}, config, _channels(encoder), side, wishes.images or 256)


def _of_run(run: Run, wishes: Wishes) -> Subject:
    config = run.config.replace(root=wishes.root or run.config.root)
    own = view_recipe(config)
    parts = {name: part for name, part in run.method.named_children() if _learns(part)}
    title = f"{run.config.title}, update {run.step} of {run.path}"
    path: Path | None = run.path
    if wishes.data not in (None, config.data):
        config, path = recipe("byol", wishes.data or "", root=wishes.root or run.config.root), None
    return _shown(title, run.encoder, parts, config, len(own.mean), own.size, wishes.images or 2000, path)


def _folder_with(known: str, path: Path, *names: str) -> Path | None:
    """The folder that holds a file of this name, given as itself or by one of the names in it."""
    folder = path.parent if path.name in names else path
    return folder if (folder / known).is_file() else None


def _exported(path: Path, wishes: Wishes) -> Path | None:
    """The folder that `export` wrote, but where something else is said of the weights in it."""
    return None if wishes.encoder is not None else _folder_with(CARD, path, WEIGHTS, CARD)


def _of_exported(folder: Path, wishes: Wishes) -> Subject:
    loaded = load(folder, wishes.device)
    learnt = Config.from_json(read_card(folder / CARD)["run"]["config"])
    config = recipe("byol", wishes.data, root=wishes.root) if wishes.data else learnt.replace(root=wishes.root)
    channels, side = len(loaded.preprocess.mean), loaded.preprocess.size
    parts = {"encoder": loaded.encoder}
    return _shown(f"{folder}", loaded.encoder, parts, config, channels, side, wishes.images or 2000)


def _shown(
    title: str,
    encoder: nn.Module,
    parts: dict[str, nn.Module],
    config: Config,
    channels: int,
    side: int | None,
    n: int,
    run: Path | None = None,
) -> Subject:
    """With some held-out images of the config's data, as the run held them out."""
    weights = next(encoder.parameters(), torch.zeros(0))
    pixels = images_of(config, config.holdout, (2, n), run=run)[1].pixels[:n].to(weights.device)
    if pixels.shape[1] not in (1, channels):
        raise UserError(f"{title} takes images of {channels} channel, those of {config.data} have {pixels.shape[1]}")
    views = view_recipe(config)
    title = f"{title}: {len(pixels):,} held-out images of {config.data}"
    return Subject(title, encoder, parts, pixels, views, channels, side or views.size)


def _learns(part: nn.Module) -> bool:
    return any(parameter.requires_grad for parameter in part.parameters())


def _channels(network: nn.Module) -> int:
    first = next((layer for layer in network.modules() if isinstance(layer, nn.Conv2d)), None)
    return 3 if first is None else first.in_channels


def _named(target: str, wishes: Wishes) -> tuple[nn.Module, str]:
    """A checkpoint's encoder, or a model by name; with its title."""
    path = Path(target)
    if path.suffix not in CHECKPOINTS:
        title = f"{model_name(target) or target}, {'pretrained' if wishes.pretrained else 'as it is initialized'}"
        return _model(target, wishes.pretrained), title
    if not path.is_file():
        raise UserError(f"there is no file {path}")
    if wishes.encoder is None:
        raise UserError(f"{path}: say which encoder it is of with `encoder`, such as torchvision/resnet50")
    encoder = _model(wishes.encoder, False)
    load_weights(encoder, path)
    return encoder, f"{path} ({wishes.encoder})"


def _model(name: str, pretrained: bool) -> nn.Module:
    if name.startswith("hypersphere/") or is_reference(name):
        return build_encoder(name, channels=1 if name == "hypersphere/digits" else 3)
    whole = model_name(name)
    if whole is None:
        if Path(name).exists():
            raise UserError(f"{name} is no run, no checkpoint ({', '.join(CHECKPOINTS)}) and no file of embeddings")
        kinds = "a run's folder, a checkpoint, a file of embeddings, or a model such as torchvision/resnet18"
        names = [*ENCODERS, *(encoder.partition("/")[2] for encoder in ENCODERS)]
        raise UserError(f"{name!r} is not known{similar(name, names)}: give {kinds}")
    return build_model(whole, pretrained=pretrained)
