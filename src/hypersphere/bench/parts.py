"""The parts of a benchmark, each a table of figures; and the file that keeps them."""

import dataclasses
import functools
import json
import os
import platform
import re
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import torch

from hypersphere.bench import agreement, energy, files, lightly, monitors, step
from hypersphere.bench.timing import milliseconds
from hypersphere.config import Config
from hypersphere.data import Dataset, Images, Listing
from hypersphere.data.loader import center_view
from hypersphere.errors import UserError
from hypersphere.evaluate import extract, linear, linear_cached
from hypersphere.runs.build import build_method, view_recipe
from hypersphere.runs.machine import Execution, execution_of, provenance
from hypersphere.runs.recipes import recipe_for
from hypersphere.util.files import write_json
from hypersphere.util.progress import tell
from hypersphere.views import Views

Part = Literal["step", "first", "probes", "energy", "views", "agreement", "monitors", "files"]
PARTS: tuple[Part, ...] = get_args(Part)
Figures = dict[str, float]
DRAWN, DRAWN_BATCH = 4096, 256  # files, where no folder is given; and of them in an update


@dataclasses.dataclass(frozen=True)
class Bench:
    """What is measured, on what."""

    configs: Sequence[Config]  # of the methods
    how: Execution
    peer: bool

    @functools.cached_property
    def images(self) -> Images:
        """Training images in memory: all, or some thousand of a folder."""
        dataset = Dataset.resolve(self.configs[0])
        split = dataset.split("test" if dataset.recipe_hints() is None else "validation")
        return dataset.in_memory(split)[0].to(self.how.device)

    def step(self) -> dict[str, Figures]:
        """An update of each method, and of the peer."""
        found = {}
        for config in self.configs:
            tell(f"an update of {_title(config)}")
            found[_title(config)] = step.time_step(config, self.how, self.images)
            _forget()
        if self.peer:
            found |= self._peers()
        plain = found[_title(self.configs[0])]["step_ms"]
        for name, figures in found.items():
            if "regularizer_ms" in figures:
                figures["added_to_step"] = figures["regularizer_ms"] / plain
            if "views_ms" in figures:
                figures["views_share"] = figures["views_ms"] / figures["step_ms"]
            for peer in [other for other in found if other.startswith("lightly") and not name.startswith("lightly")]:
                figures[f"times_{peer}"] = figures["images_per_second"] / found[peer]["images_per_second"]
        return found

    def _peers(self) -> dict[str, Figures]:
        config = self.configs[0]
        recipe = view_recipe(config)
        given = (config, self.images, recipe.augmentations[0], recipe.size, self.how.device)
        found = {}
        for name, fast in (("lightly", False), ("lightly bf16 channels_last", True)):
            tell(f"the same update through {name}")
            rate = lightly.images_per_second(*given, fast=fast)
            found[name] = {"images_per_second": rate, "step_ms": 1e3 * config.batch / rate}
            _forget()
        return found

    def first(self) -> dict[str, Figures]:
        """Seconds from the command to the first update."""
        config = self.configs[-1]
        tell(f"the first update of {config.title}, from its command")
        return {config.title: {"first_update_s": step.seconds_to_first_update(config)}}

    def probes(self) -> dict[str, Figures]:
        """Seconds of the linear probes of an encoder that has learnt nothing: they take as long as any other's."""
        config, device = self.configs[0], self.how.device
        recipe, images = view_recipe(config), self.images.labelled
        encoder = build_method(config, self.images.channels).encoder.to(device).to(memory_format=self.how.layout)
        test = images[torch.arange(min(10_000, len(images)), device=device)]
        view, precision = center_view(recipe), self.how.precision
        tell("the linear probe of 80 epochs")
        began = time.perf_counter()
        shown = (some.loader(recipe, 0, device) for some in (images, test))
        linear(encoder, *shown, precision=precision)
        middle = time.perf_counter()
        features, queries = (extract(encoder, some.pixels, view, precision=precision) for some in (images, test))
        linear_cached(features, images.labels, queries, test.labels)
        return {"linear": {"seconds": middle - began}, "linear-cached": {"seconds": time.perf_counter() - middle}}

    def energy(self) -> dict[str, Figures]:
        tell("the energy of many neurons")
        if self.how.device.type == "cuda":
            return {"131072 × 1024": energy.on_gpu(self.how.device)}
        return {"4096 × 512": energy.on_cpu()}

    def views(self) -> dict[str, Figures]:
        """Images a second whose two views one core makes."""
        recipe = view_recipe(self.configs[0])
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        tell("views on one core")
        ours, sample = Views(recipe, 0), torch.arange(min(512, len(self.images)))
        pixels = self.images.pixels.cpu()
        ms = milliseconds(lambda: ours.training(pixels, sample, 0), pixels.device, 10)
        found = {"ours": {"images_per_second": 1e3 * len(sample) / ms}}
        if self.peer:
            rate = lightly.views_per_second(self.images, recipe.augmentations[0], recipe.size)
            found["lightly"] = {"images_per_second": rate}
            found["ours"]["times_lightly"] = found["ours"]["images_per_second"] / rate
        torch.set_num_threads(threads)
        return found

    def agreement(self) -> dict[str, Figures]:
        """Losses of the first updates, beside those of the float32 reference."""
        tell(f"the first 50 updates of {self.configs[0].title} by the reference, and as they come")
        return agreement.agreement(self.configs[0], self.how, self.images)

    def monitors(self) -> dict[str, Figures]:
        """What is measured during training, as a share of it."""
        tell("what is measured during training")
        return monitors.monitoring(self.configs[0], self.how)

    def files(self) -> dict[str, Figures]:
        """Updates fed from image files: those of the folder given, or drawn ones of a photograph's size."""
        config = self.configs[0]
        if isinstance(learnt := Dataset.resolve(config).split("validation").train, Listing):
            return self._files(config, learnt)
        with tempfile.TemporaryDirectory() as folder:
            tell(f"drawing {DRAWN:,} JPEG files of 500 × 375 pixels")
            files.draw_folder(self.images, Path(folder), DRAWN)
            same = {name: getattr(config, name) for name in ("encoder", "precision", "device", "workers")}
            batch = min(config.batch, DRAWN_BATCH)
            drawn = recipe_for(config.title, folder, size=224, batch=batch, **same)
            return self._files(drawn, Dataset.resolve(drawn).split("validation").train)

    def _files(self, config: Config, learnt: Listing) -> dict[str, Figures]:
        recipe = view_recipe(config)
        name = f"{config.title} {config.encoder.removeprefix('torchvision/')}"
        tell(f"updates of {name}, {config.batch} images of {config.size} × {config.size} from files")
        found = {name: files.feeding(config, self.how, learnt)}
        _forget()
        found |= files.decoding(config, learnt, self.how.device)
        if self.peer:
            tell("the same updates through lightly")
            given = (config, learnt.paths, recipe.augmentations[0], recipe.size, self.how.device)
            rate = lightly.images_per_second(*given, updates=20, warm_up=6)
            found["lightly"] = {"images_per_second": rate, "step_ms": 1e3 * config.batch / rate}
            found[name]["times_lightly"] = found[name]["images_per_second"] / rate
        return found


def bench(
    configs: Sequence[Config], parts: Sequence[Part], peer: bool, out: Path
) -> tuple[dict[str, dict[str, Figures]], Path]:
    """Measure, and keep the figures in a file of this machine's, beside those of parts measured before."""
    if peer:
        lightly.available()
        if len(view_recipe(configs[0]).mean) != 3:
            raise UserError(f"`peer` lightly works on images in colour: choose other `data` than {configs[0].data}")
    how = execution_of(configs[0])
    machine = {**provenance(how.device), "cpu": _processor()}
    name = machine["cpu" if how.device.type == "cpu" else "device"]
    file = out / f"{re.sub(r'[^a-z0-9]+', '-', name.lower()).strip('-')}.json"
    _kept(file)  # a file that cannot be added to is told before anything is measured
    with how.applied():
        measured = Bench(configs, how, peer)
        found: dict[str, dict[str, Figures]] = {part: getattr(measured, part)() for part in parts}
    _keep(file, found, {**machine, "cores": os.cpu_count()}, configs[0], how)
    return found, file


def _keep(file: Path, found: dict[str, Any], machine: dict[str, Any], config: Config, how: Execution) -> None:
    when, precision = time.strftime("%Y-%m-%d"), str(how.precision).removeprefix("torch.")
    about = {"when": when, "machine": machine, "data": config.data, "batch": config.batch, "precision": precision}
    write_json(file, {**_kept(file), **{part: {**about, "found": rows} for part, rows in found.items()}})


def _kept(file: Path) -> dict[str, Any]:
    """Figures of before, in a folder that is made, and tried, here."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=file.parent):
            pass
        before = json.loads(file.read_bytes()) if file.exists() else {}
    except OSError as error:
        raise UserError(f"`out`: could not write {file}: {error.strerror}") from None
    except ValueError as error:
        raise UserError(f"{file} is damaged ({error}): mend or remove it") from None
    if not isinstance(before, dict):
        raise UserError(f"{file} holds no figures of parts: move it away, or choose another folder as `out`")
    return before


def _title(config: Config) -> str:
    whole = " on all layers" if config.energy and config.energy_layers == ("encoder", "projector", "predictor") else ""
    return config.title + whole


def _processor() -> str:
    with open("/proc/cpuinfo", encoding="utf-8") if os.path.exists("/proc/cpuinfo") else open(os.devnull) as file:
        names = re.findall(r"model name\s*: (.*)", file.read())
    return names[0] if names else platform.processor()


def _forget() -> None:
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
