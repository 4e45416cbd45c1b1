"""Training from files: how long the device waits for images."""

import contextlib
import itertools
import multiprocessing
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from hypersphere.bench.step import build, operations
from hypersphere.bench.timing import Figures, matmul_rate, now, resident_mib, seconds
from hypersphere.config import Config
from hypersphere.data import Dataset, Images, Listing
from hypersphere.data.decode import read_pixels
from hypersphere.data.loader import Batch, Crops, PackedCrops
from hypersphere.runs.build import plan_of, view_pipeline
from hypersphere.runs.machine import Execution
from hypersphere.util.console import notify
from hypersphere.util.random_numbers import Key
from hypersphere.views.crops import crop_draws, crops, decode_side

# encoder, side of its input, batch
PHOTOGRAPHS = (
    ("torchvision/resnet18", 128, 512),
    ("torchvision/resnet50", 224, 256),
    ("timm/vit_small_patch16_224", 224, 512),
)
ON_CPU = (("torchvision/resnet18", 64, 32),)
KINDS = {"kept": "auto", "files": "off"}  # photographs that are kept decoded, and files: with their `cache`


def draw_folder(images: Images, folder: Path, count: int, width: int = 500, height: int = 375) -> None:
    """Write JPEG files with the size of photographs: small images enlarged, with noise.

    Args:
        images: The small images.
        folder: Where to write the files.
        count: Number of files.
        width: Width in pixels.
        height: Height in pixels.
    """
    from PIL import Image

    def draw(number: int) -> None:
        pixels = images.pixels[number % len(images)].cpu().permute(1, 2, 0).numpy()
        pixels = pixels if pixels.shape[2] == 3 else pixels.repeat(3, axis=2)
        large = np.asarray(Image.fromarray(pixels).resize((width, height), Image.Resampling.BICUBIC), np.float32)
        grain = np.random.default_rng(number).normal(0, 12, (height, width, 1))
        picture = Image.fromarray((large + grain).clip(0, 255).astype(np.uint8))
        picture.save(folder / f"{number:06}.jpg", quality=90)

    with ThreadPoolExecutor() as pool:
        list(pool.map(draw, range(count)))


def feeding(config: Config, how: Execution, files: Listing, epochs: int = 9) -> Figures:
    """Time updates with images from files, and updates with a batch that is in memory.

    The first epoch is not counted. The memory of all processes is measured half-way, and its growth at the end.

    Args:
        config: Config of the run.
        how: Device and precision.
        files: The training images.
        epochs: Number of epochs.
    """
    plan, device = plan_of(config, len(files)), how.device
    torch.manual_seed(config.seed)
    trainer, update = build(config, how, channels=3, classes=max(2, len(files.classes)))
    trainer.method.start_trial(len(files))
    recipe, workers = view_pipeline(config), Dataset.resolve(config).workers
    loader = files.loader(recipe, config.seed, device, workers, cache=config.cache)
    made = loader.crops(recipe, trainer.input_type)
    coming = made.batches(plan.order(0, device))
    durations, memory = [], []
    for _ in range(epochs):
        began = now(device)
        for batch in itertools.islice(coming, plan.steps_per_epoch):
            update([batch], 0.01, 0.5)
        durations.append(now(device) - began)
        memory.append(resident_mib() + sum(resident_mib(child.pid) for child in multiprocessing.active_children()))
    streamed = sum(durations[1:]) / (epochs - 1) / plan.steps_per_epoch
    again, steps = _again(made, plan.batch), plan.steps_per_epoch
    held = seconds(lambda: update([again()], 0.01, 0.5), device, steps) / steps
    views = seconds(again, device, steps) / steps
    tflops = operations(trainer, again()) / 1e12 / streamed
    return {
        "images_per_second": plan.batch / streamed,
        "step_ms": 1e3 * streamed,
        "step_of_held_images_ms": 1e3 * held,
        "waiting_share": max(0.0, 1 - held / streamed),
        "views_share": views / streamed,
        "updates_an_epoch": plan.steps_per_epoch,
        "workers": workers,
        "mib": memory[epochs // 2],
        "mib_grown_since": memory[-1] - memory[epochs // 2],
        **({"compiled": 1} if trainer.compiled else {}),
        "share_of_matmul": tflops / matmul_rate(device, how.precision),
    }


def _again(made: Crops | PackedCrops, batch: int) -> Callable[[], Batch]:
    """Makes the views of the first images again, without reading them."""
    sample = torch.arange(batch)
    if isinstance(made, PackedCrops):
        return partial(made.batch, sample.to(made.device), 0)
    return partial(made.finish, next(iter(made.stream([made.wanted(sample, 0)]))), 0)


def photo_configs(config: Config, device: torch.device) -> dict[str, Config]:
    """The configs of `photographs`, by encoder and size: the method of `config` with each encoder of `PHOTOGRAPHS`."""
    chosen = PHOTOGRAPHS if device.type == "cuda" else ON_CPU
    return {
        f"{encoder.rpartition('/')[2]} {size}": config.replace(encoder=encoder, size=size, batch=batch, stem="imagenet")
        for encoder, size, batch in chosen
    }


def photographs(configs: dict[str, Config], how: Execution, files: Listing) -> dict[str, Figures]:
    """Updates with photographs that are kept decoded, and with files that are decoded in every epoch.

    Args:
        configs: Configs of runs on these files, by name.
        how: Device and precision.
        files: The training images.
    """
    found = {}
    for name, config in configs.items():
        for kind, cache in KINDS.items():
            notify(f"timing updates of {name}, {config.batch} images ({kind})")
            found[f"{name} {kind}"] = feeding(config.replace(cache=cache), how, files, epochs=3)
    return found


def decoding(config: Config, files: Listing, device: torch.device, count: int = 256) -> dict[str, Figures]:
    """Images per second that one core decodes, that it decodes and crops, and that the GPU decodes if it can."""
    recipe, paths = view_pipeline(config), files.paths[:count]
    numbers = crop_draws(recipe, torch.arange(len(paths)), Key(0, 0))
    began = time.perf_counter()
    images = [read_pixels(Path(path), decode_side(recipe)) for path in paths]
    middle = time.perf_counter()
    for image, number in zip(images, numbers, strict=True):
        crops(image, number, recipe)
    ended = time.perf_counter()
    rates = {"decoded_a_second": len(paths) / (middle - began), "fed_a_second": len(paths) / (ended - began)}
    found = {"one core": rates}
    if device.type == "cuda":
        with contextlib.suppress(RuntimeError):  # a torchvision without nvJPEG
            found["GPU"] = {"decoded_a_second": _decoded_by_gpu(paths, device)}
    return found


def _decoded_by_gpu(paths: tuple[Path | str, ...], device: torch.device, repeats: int = 3) -> float:
    """Images per second that torchvision's nvJPEG decodes, 64 at once, without reading the files."""
    from torchvision.io import ImageReadMode, decode_jpeg, read_file

    packed: list[Tensor] = [read_file(str(path)) for path in paths]

    def decode() -> None:
        for start in range(0, len(packed), 64):
            decode_jpeg(packed[start : start + 64], mode=ImageReadMode.RGB, device=device)

    decode()  # warm up
    return repeats * len(packed) / seconds(decode, device, repeats)
