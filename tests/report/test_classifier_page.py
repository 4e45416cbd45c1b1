"""The page of a classifier."""

import base64
import io
import re

import numpy as np
import pytest
import torch
from PIL import Image

from hypersphere.data import Images
from hypersphere.inference.classifying import Classified
from hypersphere.report.classifier import classifier_page, confused_pairs
from tests.tree import Tree


def made(tmp_path, classes=("cat", "<b>dog</b>", "owl"), wrong=True, channels=1):
    """Nine images of three classes, two of them classified wrongly."""
    truth = torch.arange(9) % 3
    predicted = truth.clone()
    if wrong:
        predicted[[0, 4]] = torch.tensor([2, 2])
    scores = 3.0 * torch.eye(3)[predicted]
    scores[4] *= 2  # more confident than the other
    images = Images(torch.randint(0, 256, (9, channels, 8, 8), dtype=torch.uint8), truth, classes)
    return Classified(tmp_path, classes, truth, scores, [f"image {n}" for n in range(9)], images, 30)


def test_the_page_shows_numbers_confusions_and_mistakes(tmp_path):
    found = made(tmp_path)
    page = Tree(classifier_page(found))
    said = page.said()
    assert "77.78" in said  # 7 of 9
    assert "<b>dog</b>" in " ".join(said)  # as text
    assert "b" not in {tag for tag, _ in page.elements}
    pictures = page.of("span", "tile")
    assert [picture["aria-label"] for picture in pictures] == ["image 4", "image 0"]
    assert all("url(data:image/png;base64," in picture["style"] for picture in pictures)
    assert not re.search(r"https?://|<link|<script src", classifier_page(found))
    cells = [attributes["style"] for tag, attributes in page.elements if tag == "td" and "style" in attributes]
    assert cells[:3] == ["--share: 0.667", "--share: 0.000", "--share: 0.333"]
    names = ["cat", "dog", "owl"]
    assert confused_pairs(found.confusion, names) == [("cat", "owl", 1, 3), ("dog", "owl", 1, 3)]


def test_a_page_without_mistakes_and_one_with_many_classes(tmp_path):
    assert "No image was classified wrongly." in Tree(classifier_page(made(tmp_path, wrong=False))).said()
    many = tuple(f"class {n}" for n in range(40))
    truth = torch.arange(40)
    images = Images(torch.zeros(40, 1, 8, 8, dtype=torch.uint8), truth, many)
    found = Classified(tmp_path, many, truth, torch.eye(40).roll(1, 1), [str(n) for n in truth], images, 40)
    page = classifier_page(found)
    assert "Confusion matrix" not in page
    assert page.count("<tr>") > 20


@pytest.mark.parametrize(("channels", "shown"), [(1, [0]), (2, [0]), (3, [0, 1, 2]), (5, [0, 1, 2])])
def test_mistakes_of_any_number_of_channels_are_drawn(tmp_path, channels, shown):
    found = made(tmp_path, channels=channels)
    tiles = Tree(classifier_page(found)).of("span", "tile")
    for tile, number in zip(tiles, (4, 0), strict=True):
        (uri,) = re.findall(r"url\(data:image/png;base64,([^)]+)\)", tile["style"])
        drawn = np.atleast_3d(np.asarray(Image.open(io.BytesIO(base64.b64decode(uri)))))
        np.testing.assert_array_equal(drawn, found.images.pixels[number][shown].permute(1, 2, 0))
