"""The classifier in an exported folder: a linear head with the names of its classes."""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypedDict

import safetensors.torch
import torch
from torch import Tensor, nn

from hypersphere.errors import UserError
from hypersphere.evaluate.classifier import LinearHead
from hypersphere.nn.weights import read_weights
from hypersphere.util.files import sha256_of

HEAD = "head.safetensors"  # in an exported folder


class HeadRecord(TypedDict):
    """What is read of the classifier in a card.json."""

    sha256: str
    classes: list[str]
    normalized: bool


class Predictions(NamedTuple):
    """Predicted classes of N images.

    Attributes:
        labels: Name of the most probable class of each image.
        probabilities: Probability of every class, shape (N, C), float32, in the order of `classes`.
        classes: Names of the C classes.
    """

    labels: list[str]
    probabilities: Tensor
    classes: tuple[str, ...]


@dataclass(frozen=True)
class Head:
    """A calibrated linear head: softmax(W x + b) of features x.

    Attributes:
        linear: W and b, divided by the temperature.
        classes: Names of the classes.
    """

    linear: LinearHead
    classes: tuple[str, ...]

    def predict(self, features: Tensor) -> Predictions:
        """Predictions for features of shape (N, D)."""
        probabilities = self.linear.scores(features).softmax(dim=1)
        best = probabilities.argmax(dim=1).tolist() if len(features) else []
        return Predictions([self.classes[n] for n in best], probabilities, self.classes)

    def as_bytes(self) -> bytes:
        """The content of head.safetensors."""
        tensors = {"weight": self.linear.weight.cpu().contiguous(), "bias": self.linear.bias.cpu().contiguous()}
        return safetensors.torch.save(tensors, metadata={"format": "pt"})

    def to(self, device: torch.device) -> "Head":
        weight, bias = self.linear.weight.to(device), self.linear.bias.to(device)
        return Head(LinearHead(weight, bias, self.linear.normalized), self.classes)


def read_head(card: Path, record: HeadRecord, features: int) -> Head:
    """The head that a card describes.

    Raises:
        UserError: If its file is missing, or is not the one that the card describes.
    """
    file, classes = card.with_name(HEAD), tuple(record["classes"])
    if not file.is_file():
        raise UserError(f"{file} does not exist, but {card.name} describes it")
    if sha256_of(file) != record["sha256"]:
        raise UserError(f"{file} is not the file that {card.name} describes: their hashes differ")
    tensors = read_weights(file)
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    if not classes or shapes != {"weight": (len(classes), features), "bias": (len(classes),)}:
        raise UserError(f"{file} does not fit {len(classes)} classes and {features} features: it has {shapes}")
    return Head(LinearHead(tensors["weight"].float(), tensors["bias"].float(), record["normalized"]), classes)


class Classifier(nn.Module):
    """Encoder and head as one network: normalized images (N, C, size, size) to probabilities (N, classes)."""

    def __init__(self, encoder: nn.Module, head: Head) -> None:
        super().__init__()
        self.encoder, self.normalized = encoder, head.linear.normalized
        self.weight, self.bias = nn.Parameter(head.linear.weight), nn.Parameter(head.linear.bias)

    def forward(self, images: Tensor) -> Tensor:
        return LinearHead(self.weight, self.bias, self.normalized).scores(self.encoder(images)).softmax(dim=1)
