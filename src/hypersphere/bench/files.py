"""A run that learns from files: does the device wait for them?"""

import contextlib
import itertools
import multiprocessing
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from hypersphere.bench.step import operations, wait
from hypersphere.bench.timing import matmul_rate, resident_mib
from hypersphere.config import Config
from hypersphere.data import Dataset, Images, Listing
from hypersphere.data.decode import read_pixels
from hypersphere.data.loader import Crops
from hypersphere.runs.build import build_method, plan_of, trainer_of, view_recipe
from hypersphere.runs.machine import Execution
from hypersphere.train import Captured
from hypersphere.views.crops import crop_numbers, crops, smallest_side

Figures = dict[str, float]


def draw_folder(images: Images, folder: Path, count: int, width: int = 500, height: int = 375) -> None:
    """JPEG files of a photograph's size and number of bytes: small images enlarged, with grain."""
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
    """Updates fed from files, all epochs but the first, beside updates of one batch that is in memory already; and
    the memory of all processes half way, and how much they have grown at the end."""
    plan, device = plan_of(config, len(files)), how.device
    torch.manual_seed(config.seed)
    method = build_method(config, channels=3, classes=max(2, len(files.classes))).to(device)
    trainer = trainer_of(config, method.to(memory_format=how.layout).train(), how)
    update = Captured(trainer.update, device) if trainer.capture else trainer.update
    recipe, workers = view_recipe(config), Dataset.resolve(config).workers
    made = Crops(files.loader(recipe, config.seed, device, workers), recipe, trainer.input_type)
    coming = made.batches(plan.order(0, device))
    seconds, memory = [], []
    for _ in range(epochs):
        began = time.perf_counter()
        for batch in itertools.islice(coming, plan.steps_per_epoch):
            update([batch], 0.01, 0.5)
        wait(device)
        seconds.append(time.perf_counter() - began)
        memory.append(resident_mib() + sum(resident_mib(child.pid) for child in multiprocessing.active_children()))
    streamed = sum(seconds[1:]) / (epochs - 1) / plan.steps_per_epoch
    decoded = next(iter(made.stream([made.wanted(torch.arange(plan.batch), 0)])))
    began = time.perf_counter()
    for _ in range(plan.steps_per_epoch):
        update([made.finish(decoded, 0)], 0.01, 0.5)
    wait(device)
    held = (time.perf_counter() - began) / plan.steps_per_epoch
    tflops = operations(trainer, made.finish(decoded, 0)) / 1e12 / streamed
    return {
        "images_per_second": plan.batch / streamed,
        "step_ms": 1e3 * streamed,
        "step_of_held_images_ms": 1e3 * held,
        "waiting_share": max(0.0, 1 - held / streamed),
        "updates_an_epoch": plan.steps_per_epoch,
        "workers": workers,
        "mib": memory[epochs // 2],
        "mib_grown_since": memory[-1] - memory[epochs // 2],
        "share_of_matmul": tflops / matmul_rate(device, how.precision),
    }


def decoding(config: Config, files: Listing, device: torch.device, count: int = 256) -> dict[str, Figures]:
    """Images a second: decoded by one core, decoded and cropped by one core; decoded by the GPU, where it can."""
    recipe, paths = view_recipe(config), files.paths[:count]
    numbers = crop_numbers(recipe, torch.arange(len(paths)), 0, 0)
    began = time.perf_counter()
    images = [read_pixels(Path(path), smallest_side(recipe)) for path in paths]
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
    """By torchvision's nvJPEG, 64 files at once; read from disk before."""
    from torchvision.io import ImageReadMode, decode_jpeg, read_file

    packed: list[Tensor] = [read_file(str(path)) for path in paths]
    began = 0.0
    for repeat in range(1 + repeats):
        if repeat == 1:
            wait(device)
            began = time.perf_counter()
        for start in range(0, len(packed), 64):
            decode_jpeg(packed[start : start + 64], mode=ImageReadMode.RGB, device=device)
    wait(device)
    return repeats * len(packed) / (time.perf_counter() - began)
