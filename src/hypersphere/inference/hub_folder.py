"""A folder for the Hugging Face Hub: a model card that people read, and the configuration with which timm loads it."""

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any

import torch
from torch import nn

from hypersphere.config import Config
from hypersphere.data.decode import WHITE
from hypersphere.errors import UserError, first_line
from hypersphere.nn import ENCODERS
from hypersphere.nn.weights import CARD, HUB_WEIGHTS, WEIGHTS
from hypersphere.runs.run import Run
from hypersphere.util.optional import require

README, SETTINGS = "README.md", "config.json"
TOLERANCE = 1e-4  # between timm and this encoder, relative to the largest feature if that is above 1
NAMES = {"knn": "k-NN", "linear": "linear probe", "linear-cached": "linear probe, cached features"}
MEASURES = ("uniformity", "effective_rank", "rankme", "alignment")


def for_the_hub(card: dict[str, Any]) -> dict[str, Any]:
    """The card with the weights' name in such a folder, and without paths of the user's machine."""
    config = {name: _without_folders(value) for name, value in card["run"]["config"].items()}
    load = card["load"]
    if isinstance(load, dict):
        load = {library: [line.replace(WEIGHTS, HUB_WEIGHTS) for line in lines] for library, lines in load.items()}
    return card | {"load": load, "run": card["run"] | {"config": config}}


def _without_folders(value: Any) -> Any:
    return PurePath(value).name if isinstance(value, str) and ("/" in value and Path(value).exists()) else value


def timm_config(config: Config, encoder: nn.Module, sizes: Mapping[str, Any]) -> dict[str, Any]:
    """The config.json that timm reads, if timm has this network with these weights.

    Args:
        config: Config of the run.
        encoder: The trained encoder on the CPU, without parametrizations.
        sizes: The card's `input`.

    Raises:
        UserError: If timm is not installed, has no such network, or computes other features.
    """
    timm = require("timm", "`format` timm")
    name, classes = _architecture(config), config.dimensions or 0
    try:
        model: Any = timm.create_model(name, num_classes=classes, in_chans=sizes["channels"]).eval()
        model.load_state_dict(encoder.state_dict())
        _compare(encoder, model, sizes)
    except (RuntimeError, TypeError) as error:
        raise UserError(f"timm's {name} does not have these weights ({first_line(error)}): use `format` hub") from None
    known = {key: model.pretrained_cfg.get(key) for key in ("first_conv", "classifier", "fixed_input_size")}
    return {
        "architecture": name,
        "num_classes": classes,
        "num_features": model.num_features,
        "pretrained_cfg": known
        | ({} if sizes["channels"] in (1, 3) else {"first_conv": None})  # older versions of timm would draw it anew
        | {
            "tag": "hypersphere",
            "custom_load": False,
            "input_size": [sizes["channels"], sizes["size"], sizes["size"]],
            "interpolation": "bicubic",
            "crop_mode": "center",
            "crop_pct": _share(sizes),
            "mean": list(sizes["mean"]),
            "std": list(sizes["std"]),
            "num_classes": classes,
        },
    }


def _architecture(config: Config) -> str:
    library, _, name = config.encoder.partition("/")
    if library == "timm":
        return name.partition(".")[0]  # the name of pretrained weights follows the dot
    if library == "torchvision" and config.encoder in ENCODERS:
        if config.stem == "cifar":
            raise UserError(f"timm has no {name} with the stem for small images (`stem` cifar): use `format` hub")
        if config.norm != "batch":
            raise UserError(f"timm has no {name} with `norm` {config.norm}: use `format` hub")
        return name
    raise UserError(f"timm has no {config.encoder}: use `format` hub")


def _compare(encoder: nn.Module, model: nn.Module, sizes: Mapping[str, Any]) -> None:
    shape = (2, sizes["channels"], sizes["size"], sizes["size"])
    images = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        wanted, found = encoder(images), model(images)
    furthest = float((found - wanted).abs().max())
    if not furthest <= TOLERANCE * max(1.0, float(wanted.abs().max())):
        raise RuntimeError(f"its features differ by {furthest:.1e}")


def _share(sizes: Mapping[str, Any]) -> float:
    """Share of a resized image that timm keeps. It resizes to floor(size / share), which must not be rounded down."""
    size, whole = sizes["size"], sizes["resize"] or sizes["side"]
    share = (sizes["crop"] or whole) / whole
    resized = round(size / share)
    return share if math.floor(size / share) == resized else math.nextafter(size / resized, 0)


def model_card(run: Run, card: Mapping[str, Any], timm: bool, repository: str | None) -> str:
    """Text of README.md: front matter for the Hub, how to use the encoder, its input, results and training.

    Args:
        run: The run.
        card: Content of card.json.
        timm: Whether timm loads the folder.
        repository: USER/NAME on the Hub; None if it is not known.
    """
    config, data = run.config, _without_folders(run.config.data)
    name = repository.rpartition("/")[2] if repository else f"{config.title}-{data}"
    about = (
        f"An image encoder ({_network(config)}) trained without labels by {config.title} on {data}, for "
        f"{run.step:,} steps. It maps an image to {card['features']} features, for search, clustering, linear "
        "classifiers and fine-tuning."
    )
    if config.method == "supervised":
        about = about.replace("without labels by supervised", "with labels")
    sections = {
        "Use": _usage(card, timm, repository),
        "Input": _input(card["input"]),
        "Results": _results(card),
        "Training": _training(run, card),
        "Files": _files(timm),
    }
    body = "\n\n".join(f"## {title}\n\n{text}" for title, text in sections.items())
    return f"---\n{_front_matter(name, card, data, timm)}---\n\n# {name}\n\n{about}\n\n{body}\n"


def _network(config: Config) -> str:
    return config.encoder.partition("/")[2] or config.encoder


def _front_matter(name: str, card: Mapping[str, Any], data: str, timm: bool) -> str:
    """YAML whose values are JSON, which is YAML, too."""
    fields: dict[str, Any] = {
        "library_name": "timm" if timm else "hypersphere",
        "pipeline_tag": "image-feature-extraction",
        "tags": ["image-feature-extraction", "self-supervised-learning", "hypersphere", *(["timm"] if timm else [])],
    }
    results = [
        {
            "task": {"type": "image-classification"},
            "dataset": {"type": str(data), "name": str(data), "split": split},
            "metrics": [{"type": "accuracy", "value": round(values["top1"], 2), "name": f"{_probe(probe, values)}"}],
        }
        for split, probe, values in _accuracies(card)
    ]
    if results:
        fields["model-index"] = [{"name": name, "results": results}]
    return "".join(f"{key}: {json.dumps(value, ensure_ascii=False)}\n" for key, value in fields.items())


def _accuracies(card: Mapping[str, Any]) -> Iterator[tuple[str, str, dict[str, float]]]:
    for split, probes in card["metrics"].items():
        for probe, values in probes.items():
            if math.isfinite(values.get("top1", math.nan)):
                yield split, probe, values


def _probe(name: str, values: Mapping[str, float]) -> str:
    where, slash, probe = name.rpartition("/")
    neighbours = f", k = {values['k']:.0f}" if "k" in values else ""
    return f"{where}{slash}{NAMES.get(probe, probe)}{neighbours}"


def _usage(card: Mapping[str, Any], timm: bool, repository: str | None) -> str:
    sizes = card["input"]
    colours, deep = {1: "L", 3: "RGB"}.get(sizes["channels"]), sizes["white"] is not None
    example = "image.npy" if colours is None else "image.png" if deep else "photo.jpg"
    ours = [
        "from hypersphere.integrations.hub import Encoder  # needs huggingface_hub, too",
        "",
        f'encoder = Encoder.from_pretrained("{repository or "."}")' + _hint(repository, "USER/NAME"),
        f'features = encoder.encode(["{example}"])',
    ]
    source = f"hf-hub:{repository}" if repository else "local-dir:."
    by_timm = [
        "settings = timm.data.resolve_model_data_config(model)",
        "transform = timm.data.create_transform(**settings, is_training=False)",
        f'features = model(transform(Image.open("{example}").convert("{colours}"))[None])',
    ]
    exactly = ["", *card["preprocess"]["torchvision"], "", f'features = model(preprocess("{example}")[None])']
    with_timm = [
        "import timm",
        *([] if colours is None or deep else ["from PIL import Image"]),
        "",
        f'model = timm.create_model("{source}", pretrained=True).eval()' + _hint(repository, "hf-hub:USER/NAME"),
        *(exactly if colours is None or deep else by_timm),  # Pillow does not read or would clip such images
    ]
    blocks = [f"With timm:\n\n{_block(with_timm)}\n\nWith hypersphere:"] if timm else []
    text = "\n\n".join([*blocks, _block(ours)])
    return f"{text}\n\nFeatures are not normalized. Compare images by the cosine of their features."


def _hint(repository: str | None, name: str) -> str:
    return "" if repository else f'  # in this folder; from the Hub: "{name}"'


def _block(lines: list[str]) -> str:
    return "\n".join(["```python", *lines, "```"])


def _input(sizes: Mapping[str, Any]) -> str:
    colours = {1: "grey", 3: "RGB"}.get(sizes["channels"], "all channels of a file in their order")
    white = f"{sizes['white'] or WHITE:,} and more become 255"
    mean, std = (", ".join(f"{x:.4g}" for x in sizes[name]) for name in ("mean", "std"))
    steps = [f"the centre square, resized to {sizes['side']} × {sizes['side']} pixels (bicubic)"]
    steps += [f"resized to {sizes['resize']} pixels"] if sizes["resize"] not in (None, sizes["side"]) else []
    steps += [f"the centre {sizes['crop']} × {sizes['crop']} pixels of it"] if sizes["crop"] else []
    rows = {
        "image": f"{sizes['channels']} × {sizes['size']} × {sizes['size']}, {colours}",
        "from a file": ", then ".join(steps),
        "more than 8 bits": f"{white}; PIL's `convert` would clip: use the lines `preprocess` in `card.json`",
        "mean": f"{mean} (of values from 0 to 1)",
        "standard deviation": std,
    }
    return f"{_rows(rows)}\n\n`card.json` describes each step in detail."


def _rows(rows: Mapping[str, Any]) -> str:
    return "\n".join(["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows.items())])


def _results(card: Mapping[str, Any]) -> str:
    lines = ["| probe | images | top-1 | top-5 |", "|---|---|---|---|"]
    for split, probe, values in _accuracies(card):
        best = f"{values['top5']:.2f} %" if "top5" in values else ""
        interval = f" ± {values['interval']:.2f}" if "interval" in values else ""
        lines.append(f"| {_probe(probe, values)} | {split} | {values['top1']:.2f}{interval} % | {best} |")
    if len(lines) == 2:
        return "This encoder has not been evaluated."
    found = {split: probes["sphere"] for split, probes in card["metrics"].items() if "sphere" in probes}
    for split, values in found.items():
        shown = [f"{name.replace('_', ' ')} {values[name]:.2f}" for name in MEASURES if name in values]
        lines += ["", f"Features of {values['images']:,.0f} {split} images: {', '.join(shown)}."]
    return "\n".join(lines)


def _training(run: Run, card: Mapping[str, Any]) -> str:
    config = run.config
    rows = {
        "method": config.title,
        "data": _without_folders(config.data),
        "epochs": f"{config.epochs:,}",
        "batch": f"{config.batch:,}",
        "optimizer": f"{config.optimizer}, learning rate {config.lr:g} for 256 images, weight decay "
        f"{config.weight_decay:g}",
        "seed": config.seed,
        "hash of the config": f"`{config.hash}`",
        "hypersphere": card["versions"]["hypersphere"],
    }
    return f"{_rows(rows)}\n\n`card.json` has all options."


def _files(timm: bool) -> str:
    rows = {f"`{HUB_WEIGHTS}`": "the weights", f"`{CARD}`": "architecture, preprocessing, results and options"}
    return _rows(rows | {f"`{SETTINGS}`": "what timm needs" if timm else "the name of the network"})
