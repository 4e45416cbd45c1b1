"""Runs and pictures that vectors are made of."""

import pytest

import hypersphere.inference.embed_to_file as embedding
from hypersphere.inference import embedding_files
from tests.pictures import draw, untrained

RESNET = {"size": 32, "stem": "imagenet", "encoder": "torchvision/resnet18"}


@pytest.fixture(scope="session")
def drawn(tmp_path_factory):
    folder = tmp_path_factory.mktemp("drawn")
    return folder, draw(folder, 20)


@pytest.fixture(scope="session")
def run(tmp_path_factory, drawn):
    return untrained(tmp_path_factory.mktemp("runs") / "resnet", drawn[0], **RESNET)


@pytest.fixture(scope="session")
def digits(tmp_path_factory):
    return untrained(tmp_path_factory.mktemp("runs") / "digits", "digits")


@pytest.fixture
def _small_pieces(monkeypatch):
    """Eight images at once, pieces of ten ResNet features."""
    monkeypatch.setattr(embedding, "AT_ONCE", 8)
    monkeypatch.setattr(embedding_files, "PIECE", 10 * 512 * 4)
