"""The parts of a benchmark, each a table of figures, and the file that stores them."""

import contextlib
import dataclasses
import functools
import json
import os
import platform
import re
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import torch

from hypersphere.bench import agreement, energy, files, lightly, monitors, step
from hypersphere.bench.timing import Figures, milliseconds, now
from hypersphere.config import Config
from hypersphere.data import Dataset, Images, Listing
from hypersphere.data.loader import center_view
from hypersphere.errors import UserError
from hypersphere.evaluate import extract, linear, linear_cached
from hypersphere.runs.build import build_method, view_pipeline
from hypersphere.runs.machine import Execution, provenance, training_execution
from hypersphere.runs.recipes import recipe_for
from hypersphere.util.console import notify
from hypersphere.util.files import write_json
from hypersphere.views import Views

Part = Literal["step", "first", "probes", "energy", "views", "agreement", "monitors", "files", "photos"]
PARTS: tuple[Part, ...] = get_args(Part)
PEERS = (("lightly", False), ("lightly at its best", True))  # as it comes; in bfloat16, channels-last, compiled
DRAWN, DRAWN_BATCH = 4096, 256  # files that are drawn if no folder is given, and their batch size


@dataclasses.dataclass(frozen=True)
class Bench:
    """The parts of the benchmark, a method each.

    Attributes:
        configs: Configs of the methods to time; the first one is used for the other parts.
        how: Device and precision.
        peer: Whether to do the same work with lightly.
    """

    configs: Sequence[Config]
    how: Execution
    peer: bool

    @functools.cached_property
    def images(self) -> Images:
        """Training images, on the device: all, or some thousand of a folder."""
        dataset = Dataset.resolve(self.configs[0])
        split = dataset.split("test" if dataset.has_recipe else "validation")
        return dataset.in_memory(split)[0].to(self.how.device)

    def step(self) -> dict[str, Figures]:
        """Updates of each method, and of lightly."""
        found = {}
        for config in self.configs:
            notify(f"timing updates of {_title(config)}")
            found[_title(config)] = step.time_step(config, self.how, self.images)
            _empty_cache()
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
        recipe = view_pipeline(config)
        given = (config, self.images, recipe.augmentations[0], recipe.size, self.how.device)
        found = {}
        for name, fast in PEERS:
            notify(f"timing the same updates with {name}")
            rate = lightly.images_per_second(*given, fast=fast)
            found[name] = {"images_per_second": rate, "step_ms": 1e3 * config.batch / rate}
            _empty_cache()
        return found

    def first(self) -> dict[str, Figures]:
        """Seconds from the start of the command to the first update: without kernels of earlier runs, and with them."""
        config = self.configs[-1]
        notify(f"timing the first update of {config.title}, from the start of its command, twice")
        with tempfile.TemporaryDirectory() as caches:
            cold, warm = (step.seconds_to_first_update(config, Path(caches)) for _ in range(2))
        return {config.title: {"first_update_s": cold, "again_s": warm}}

    def probes(self) -> dict[str, Figures]:
        """Seconds of the linear probes, with an encoder that is not trained."""
        config, device = self.configs[0], self.how.device
        recipe, images = view_pipeline(config), self.images.labelled
        if not len(images):
            raise UserError(f"the part probes needs labels, and {config.data} has none: choose other `parts` or `data`")
        encoder = build_method(config, self.images.channels).encoder.to(device).to(memory_format=self.how.layout)
        test = images[torch.arange(min(10_000, len(images)), device=device)]
        view, precision = center_view(recipe), self.how.precision
        notify("timing the linear probe of 80 epochs")
        began = now(device)
        shown = (some.loader(recipe, 0, device) for some in (images, test))
        linear(encoder, *shown, precision=precision)
        middle = now(device)
        features, queries = (extract(encoder, some.pixels, view, precision=precision) for some in (images, test))
        linear_cached(features, images.labels, queries, test.labels)
        return {"linear": {"seconds": middle - began}, "linear-cached": {"seconds": now(device) - middle}}

    def energy(self) -> dict[str, Figures]:
        """Time and memory of the energy of many neurons."""
        notify("timing the energy of many neurons")
        if self.how.device.type == "cuda":
            device = self.how.device
            return {"131072 × 1024": energy.on_gpu(device), "8B transformer": energy.of_transformer(device)}
        return {"4096 × 512": energy.on_cpu()}

    def views(self) -> dict[str, Figures]:
        """Images per second for which one core makes two views."""
        recipe = view_pipeline(self.configs[0])
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        notify("timing views on one core")
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
        """Losses of the first updates, compared with those of the float32 reference."""
        notify(f"comparing the first 50 updates of {self.configs[0].title} with the float32 reference")
        return agreement.agreement(self.configs[0], self.how, self.images)

    def monitors(self) -> dict[str, Figures]:
        """Duration of the measurements during training, as a share of it."""
        notify("timing the measurements during training")
        return monitors.monitoring(self.configs[0], self.how)

    def files(self) -> dict[str, Figures]:
        """Updates with images from files: those of the given folder, or drawn ones with the size of photographs."""
        with self._listing() as (config, listing):
            return self._files(config, listing)

    def photos(self) -> dict[str, Figures]:
        """Updates of several encoders with photographs that are kept decoded, and with files."""
        with self._listing() as (config, listing):
            timed = files.photo_configs(config, self.how.device)
            found = files.photographs(timed, self.how, listing)
            first = next(iter(timed))
            for name, fast in PEERS if self.peer else ():
                peer = self._peer_on_files(timed[first], listing, name, fast)
                for row in (f"{first} {kind}" for kind in files.KINDS):
                    found[row][f"times_{name}"] = found[row]["images_per_second"] / peer["images_per_second"]
                found[name] = peer
            return found

    def _peer_on_files(self, config: Config, files: Listing, name: str, fast: bool) -> Figures:
        notify(f"timing the same updates with {name}")
        recipe = view_pipeline(config)
        given = (config, files.paths, recipe.augmentations[0], recipe.size, self.how.device)
        rate = lightly.images_per_second(*given, updates=20, warm_up=6, fast=fast)
        _empty_cache()
        return {"images_per_second": rate, "step_ms": 1e3 * config.batch / rate}

    @contextlib.contextmanager
    def _listing(self) -> Iterator[tuple[Config, Listing]]:
        """The given folder, or drawn files with the size of photographs."""
        config = self.configs[0]
        if isinstance(listing := Dataset.resolve(config).split("validation").train, Listing):
            yield config, listing
            return
        with tempfile.TemporaryDirectory() as folder:
            notify(f"drawing {DRAWN:,} JPEG files of 500 × 375 pixels")
            files.draw_folder(self.images, Path(folder), DRAWN)
            same = {name: getattr(config, name) for name in ("encoder", "precision", "device", "workers")}
            batch = min(config.batch, DRAWN_BATCH)
            drawn = recipe_for(config.title, folder, size=224, batch=batch, **same)
            yield drawn, Dataset.resolve(drawn).split("validation").train

    def _files(self, config: Config, learnt: Listing) -> dict[str, Figures]:
        name = f"{config.title} {config.encoder.removeprefix('torchvision/')}"
        notify(f"timing updates of {name}, {config.batch} images of {config.size} × {config.size} from files")
        found = {name: files.feeding(config.replace(cache="off"), self.how, learnt)}
        _empty_cache()
        found |= files.decoding(config, learnt, self.how.device)
        if self.peer:
            found["lightly"] = self._peer_on_files(config, learnt, "lightly", fast=False)
            rate = found["lightly"]["images_per_second"]
            found[name]["times_lightly"] = found[name]["images_per_second"] / rate
        return found


def bench(
    configs: Sequence[Config], parts: Sequence[Part], peer: bool, out: Path
) -> tuple[dict[str, dict[str, Figures]], Path]:
    """Measure some parts, and store the figures in the file of this machine, beside those of other parts.

    Args:
        configs: Configs of the methods to time.
        parts: Parts to measure.
        peer: Whether to do the same work with lightly.
        out: Folder of the files.

    Returns:
        Figures by part and row, and the file.

    Raises:
        UserError: If the file cannot be written, or a part cannot be measured with these options.
    """
    if peer:
        lightly.available()
        if len(view_pipeline(configs[0]).mean) != 3:
            raise UserError(f"`peer` lightly needs colour images: choose other `data` than {configs[0].data}")
    how = training_execution(configs[0])
    machine = {**provenance(how.device), "cpu": _processor()}
    name = machine["cpu" if how.device.type == "cpu" else "device"]
    file = out / f"{re.sub(r'[^a-z0-9]+', '-', name.lower()).strip('-')}.json"
    _stored(file)  # raises an error before anything is measured
    with how.applied():
        measured = Bench(configs, how, peer)
        found: dict[str, dict[str, Figures]] = {part: getattr(measured, part)() for part in parts}
    _store(file, found, {**machine, "cores": os.cpu_count()}, configs[0], how)
    return found, file


def _store(file: Path, found: dict[str, Any], machine: dict[str, Any], config: Config, how: Execution) -> None:
    when, precision = time.strftime("%Y-%m-%d"), str(how.precision).removeprefix("torch.")
    about = {"when": when, "machine": machine, "data": config.data, "batch": config.batch, "precision": precision}
    write_json(file, {**_stored(file), **{part: {**about, "found": rows} for part, rows in found.items()}})


def _stored(file: Path) -> dict[str, Any]:
    """Figures that are stored already; checks that the file can be written, and makes its folder."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=file.parent):
            pass
        before = json.loads(file.read_bytes()) if file.exists() else {}
    except OSError as error:
        raise UserError(f"`out`: could not write {file}: {error.strerror}") from None
    except ValueError as error:
        raise UserError(f"{file} is damaged ({error}): repair or remove it") from None
    if not isinstance(before, dict):
        raise UserError(f"{file} holds no figures: move it away, or choose another folder with `out`")
    return before


def _title(config: Config) -> str:
    whole = " on all layers" if config.energy and config.energy_layers == ("encoder", "projector", "predictor") else ""
    return config.title + whole


def _processor() -> str:
    with open("/proc/cpuinfo", encoding="utf-8") if os.path.exists("/proc/cpuinfo") else open(os.devnull) as file:
        names = re.findall(r"model name\s*: (.*)", file.read())
    return names[0] if names else platform.processor()


def _empty_cache() -> None:
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
