"""The lines of a card that preprocess images without hypersphere."""

import numpy as np
import pytest
import torch
from PIL import Image

import hypersphere as hs
from hypersphere.inference.exporting import export
from hypersphere.inference.preprocess_code import preprocess_code
from tests.inference.hands import read_card
from tests.pictures import untrained

RUNS = {  # options of a run, and the libraries that its card has lines for
    "photographs": ({"size": 32, "encoder": "torchvision/resnet18", "stem": "cifar"}, ("torchvision", "timm")),
    "odd": ({"size": 45, "encoder": "hypersphere/digits", "white": 4095}, ("torchvision", "timm")),
    "digits": ({"data": "digits"}, ("torchvision",)),
    "cifar10": (
        {"data": "cifar10", "encoder": "hypersphere/digits", "size": None},
        ("torchvision",),
    ),
    "stl10": ({"data": "stl10", "encoder": "hypersphere/digits", "size": None}, ("torchvision",)),
}


def pictures(folder):
    """Files of many kinds, as Pillow writes them."""
    rng = np.random.default_rng(0)

    def noise(width, height, channels, most=255, dtype=np.uint8):
        coarse = rng.integers(0, most, (6, 9, channels))
        pixels = [
            Image.fromarray(plane.astype(np.float32)).resize((width, height)) for plane in coarse.transpose(2, 0, 1)
        ]
        return np.stack([np.asarray(plane) for plane in pixels], axis=2).astype(dtype)

    turned = Image.Exif()
    turned[0x0112] = 6
    made = {
        "large.jpg": (Image.fromarray(noise(403, 320, 3)), {"quality": 90}),
        "turned.jpg": (Image.fromarray(noise(71, 54, 3)), {"exif": turned}),
        "small.png": (Image.fromarray(noise(23, 30, 3)), {}),
        "clear.png": (Image.fromarray(noise(60, 47, 4)), {}),
        "grey.png": (Image.fromarray(noise(60, 47, 1)[:, :, 0]), {}),
        "deep.png": (Image.fromarray(noise(60, 47, 1, 65535, np.uint16)[:, :, 0]), {}),
        "palette.gif": (Image.fromarray(noise(41, 50, 3)).quantize(64), {}),
    }
    for name, (image, options) in made.items():
        image.save(folder / name, **options)
    return [folder / name for name in made]


@pytest.mark.parametrize("name", RUNS)
def test_lines_of_the_card_give_the_same_features(name, tmp_path):
    pytest.importorskip("timm")
    files = pictures(tmp_path)
    options, libraries = RUNS[name]
    run = untrained(tmp_path / "run", **{"data": tmp_path, **options})
    loaded = hs.load(run, "cpu")
    code = preprocess_code(loaded.preprocess)
    assert tuple(code) == libraries
    if name == "photographs":
        assert read_card(export(run))["preprocess"] == code
    wanted = loaded.encode(files)
    for lines in code.values():
        assert not any("hypersphere" in line for line in lines)
        names = {}
        exec("\n".join(lines), names)
        inputs = torch.stack([names["preprocess"](file) for file in files])
        with torch.no_grad():
            found = loaded.encoder(inputs)
        cosines = torch.nn.functional.cosine_similarity(found, wanted)
        assert cosines.min() > 0.9999, dict(zip(files, cosines.tolist(), strict=True))
        views = torch.stack([loaded.preprocess(file) for file in files])
        torch.testing.assert_close(inputs, views, rtol=0, atol=1e-3 if len(loaded.preprocess.mean) == 3 else 0.02)


def test_resize_and_crop_alone_do_not(tmp_path):
    """The rounding that the lines avoid is seen in the features."""
    from torchvision import transforms

    files = pictures(tmp_path)
    loaded = hs.load(untrained(tmp_path / "run", tmp_path, **RUNS["photographs"][0]), "cpu")
    bicubic = transforms.InterpolationMode.BICUBIC
    naive = transforms.Compose([transforms.Resize(37, bicubic), transforms.CenterCrop(32), transforms.ToTensor()])
    normalize = transforms.Normalize(loaded.preprocess.mean, loaded.preprocess.std)
    inputs = torch.stack([normalize(naive(Image.open(file).convert("RGB"))) for file in files[:3]])
    with torch.no_grad():
        cosines = torch.nn.functional.cosine_similarity(loaded.encoder(inputs), loaded.encode(files[:3]))
    assert cosines.min() < 0.9999
