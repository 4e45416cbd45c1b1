"""Drawn images, untrained runs and what others have learnt, for tests of what is done with an encoder."""

import numpy as np
import torch
from PIL import Image, ImageDraw

from hypersphere.config import recipe
from hypersphere.runs.build import build_method, view_pipeline
from hypersphere.runs.run import evaluate_on, random_encoder
from hypersphere.train import save_checkpoint
from hypersphere.util.files import write_json


def draw(folder, count, seed=0):
    """Discs before plain backgrounds, of all shapes, in two depths and formats; returns the paths in order."""
    rng = np.random.default_rng(seed)
    paths = []
    for n in range(count):
        size, (x, y), colours = (rng.integers(*limits).tolist() for limits in ((24, 70, 2), (0, 20, 2), (0, 256, 6)))
        image = Image.new("RGB", tuple(size), tuple(colours[:3]))
        ImageDraw.Draw(image).ellipse((x, y, x + 20, y + 20), fill=tuple(colours[3:]))
        path = folder / (f"{n:03}.png" if n % 3 else f"deep/er/{n:03}.jpg")
        path.parent.mkdir(parents=True, exist_ok=True)
        image.save(path)
        paths.append(path)
    return sorted(paths)


def untrained(path, data, **options):
    """A run's folder as if an update had been made: weights and statistics are random."""
    torch.manual_seed(0)
    config = recipe("simclr", str(data), **{"hidden": 16, "projection": 8, "device": "cpu", **options})
    method = build_method(config, len(view_pipeline(config).mean))
    for module in method.modules():
        if isinstance(module, torch.nn.modules.batchnorm._BatchNorm):
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 2)
    path.mkdir(parents=True, exist_ok=True)
    write_json(path / "run.json", {"config": config.to_json()})
    state = {"hash": config.hash, "step": 1, "seconds": 1.0, "method": method.state_dict(), "optimizer": {}}
    save_checkpoint(path / "checkpoint.pt", state)
    return path


def risen(run):
    """Per cent with one label a class, above a random encoder's."""
    before, after = (
        evaluate_on(encoder, run.config, ("few-shot",), "validation")["1-shot"]["top1"]
        for encoder in (random_encoder(run.config), run.encoder)
    )
    return after - before
