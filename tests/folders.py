"""Drawn pictures in a folder, and small runs on it."""

import numpy as np
import torch
from PIL import Image

from hypersphere.data.file_tree import Folder
from hypersphere.data.folder import labelled_below
from tests.networks import SMALL_ENCODER

SMALL = {"encoder": SMALL_ENCODER, "size": 16, "hidden": 16, "projection": 8, "batch": 8, "epochs": 2}
SMALL |= {"optimizer": "adamw", "lr": 0.01, "device": "cpu", "progress": False, "knn_every": 1}


def draw(path, seed, colour):
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(seed).integers(0, 60, (5, 7, 3)) + np.array(colour)
    Image.fromarray(noise.astype(np.uint8)).resize((28, 20)).save(path)


def list_folder(folder):
    return labelled_below(folder, Folder(folder).some_images(folder))


def weights(run):
    return torch.cat([p.detach().flatten() for p in run.method.parameters()])
