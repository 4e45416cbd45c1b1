"""Names of classes for people."""

from torchvision.models._meta import _IMAGENET_CATEGORIES

from hypersphere.data.class_names import class_names
from hypersphere.data.imagenette import CLASSES


def test_ids_of_imagenet_and_imagenette_have_names():
    assert class_names(tuple(CLASSES)) == tuple(CLASSES.values())
    assert class_names(("n00000001", "church", "n03028079")) == ("n00000001", "church", "church")
    every = tuple(f"n{number:08}" for number in range(1000))
    assert class_names(every) == tuple(_IMAGENET_CATEGORIES)
    assert class_names(()) == ()
