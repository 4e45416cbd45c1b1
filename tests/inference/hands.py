"""Vectors as files have them, and made by hand; cards; what a mistake is told as."""

import json

import numpy as np
import torch
import torchvision
from PIL import Image

from hypersphere.cli import main
from hypersphere.inference.embedding_files import read_vectors
from hypersphere.train import load_checkpoint

KINDS = (".parquet", ".npz")


def rows(path):
    found = list(read_vectors(path).pieces())
    return [name for piece in found for name in piece.paths], np.concatenate([piece.vectors for piece in found])


def by_hand(run, paths):
    """Torchvision's ResNet-18 with the run's weights, of crops made by PIL."""
    model = torchvision.models.resnet18()
    model.fc = torch.nn.Identity()
    state = load_checkpoint(run / "checkpoint.pt")["method"]
    model.load_state_dict({n.removeprefix("encoder."): x for n, x in state.items() if n.startswith("encoder.")})
    inputs = []
    for path in paths:
        image = Image.open(path).convert("RGB")
        short = min(image.size)
        left, top = (image.width - short) / 2, (image.height - short) / 2
        square = image.resize((37, 37), Image.Resampling.BICUBIC, (left, top, left + short, top + short))
        cropped = np.asarray(square.crop((2, 2, 34, 34)), np.float64) / 255
        inputs.append((cropped - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225])
    with torch.no_grad():
        return model.eval()(torch.tensor(np.stack(inputs)).float().permute(0, 3, 1, 2)).numpy()


def told(capsys, *words):
    """What a command that fails says, which is one line."""
    assert main(list(map(str, words))) == 2
    printed = capsys.readouterr()
    assert (printed.out, printed.err.count("\n")) == ("", 1), printed
    return printed.err


def read_card(folder):
    return json.loads((folder / "card.json").read_text())
