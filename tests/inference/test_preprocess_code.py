"""The lines of a card that preprocess images without hypersphere."""

import re
import struct
import zlib

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


def deep_png(file, pixels):
    """A PNG file of 16-bit colours, H × W × 3 or 4, which Pillow does not write."""
    height, width, channels = pixels.shape
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in pixels)
    header = struct.pack(">IIBBBBB", width, height, 16, 2 if channels == 3 else 6, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    framed = (struct.pack(">I", len(x)) + n + x + struct.pack(">I", zlib.crc32(n + x)) for n, x in chunks)
    file.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(framed))


def noise(most, channels, shape=(37, 52)):
    coarse = np.random.default_rng(0).integers(0, most, (channels, 5, 7)).astype(np.float32)
    return np.stack([np.asarray(Image.fromarray(plane).resize(shape[::-1])) for plane in coarse])


def twelve_bits(folder):
    Image.fromarray(noise(4096, 1)[0].clip(0).astype(np.uint16)).save(folder / "grey.png")
    deep_png(folder / "colours.png", noise(4096, 3).clip(0).astype(np.uint16).transpose(1, 2, 0))
    clear = noise(4096, 4).clip(0).astype(np.uint16)
    clear[3] = 65535 - clear[3] // 2  # of 65,535, also where white is 4,095
    deep_png(folder / "clear.png", clear.transpose(1, 2, 0))
    Image.fromarray(noise(256, 3).clip(0, 255).astype(np.uint8).transpose(1, 2, 0)).save(folder / "bytes.png")


def five_bands(folder):
    tifffile = pytest.importorskip("tifffile")
    np.save(folder / "bytes.npy", noise(256, 5).clip(0, 255).astype(np.uint8))
    np.save(folder / "last.npy", noise(256, 5).clip(0, 255).astype(np.uint8).transpose(1, 2, 0))
    np.save(folder / "floats.npy", noise(1, 5).clip(0, 1))
    np.save(folder / "wide.npy", noise(65535, 5).clip(0, 65535).astype(np.uint16))
    tifffile.imwrite(folder / "wide.tif", noise(65535, 5).clip(0, 65535).astype(np.uint16), photometric="minisblack")


@pytest.mark.parametrize(
    ("fill", "channels", "white"), [(twelve_bits, 1, 4095), (twelve_bits, 3, 4095), (five_bands, 5, None)]
)
def test_lines_for_bands_and_more_bits(fill, channels, white, tmp_path):
    (tmp_path / "images").mkdir()
    fill(tmp_path / "images")
    files = sorted((tmp_path / "images").iterdir())
    mean, std = tuple(0.3 + 0.1 * n for n in range(channels)), (0.2,) * channels
    options = {"mean": mean, "std": std, "white": white, "size": 32, "encoder": "torchvision/resnet18", "norm": "batch"}
    run = untrained(tmp_path / "run", tmp_path / "images", stem="imagenet", **options)
    loaded = hs.load(run, "cpu")
    folder = export(run, format="hub")
    card, names = read_card(folder), {}
    assert ("timm" in card["preprocess"]) == (channels == 3)
    for lines in card["preprocess"].values():
        exec("\n".join(lines), names)
        for file in files:
            wanted = loaded.preprocess(file)
            assert wanted.std() > 0.1  # it is not clipped
            torch.testing.assert_close(names["preprocess"](file), wanted, rtol=0, atol=0.03, msg=str(file))
    readme = (folder / "README.md").read_text()
    assert f"| image | {channels} × 32 × 32, " + {1: "grey", 3: "RGB", 5: "all channels"}[channels] in readme
    assert f"| more than 8 bits | {white or 65535:,} and more become 255" in readme
    first, second = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    file = files[0]
    for block in (first, second):
        (example,) = re.findall(r'"(image\.[a-z]+)"', block)
        code = block.replace(f'"{example}"', repr(str(file))).replace("local-dir:.", f"local-dir:{folder}")
        exec(code.replace('from_pretrained(".")', f"from_pretrained({str(folder)!r})"), names)
        torch.testing.assert_close(names["features"].detach(), loaded.encode([file]), rtol=0.03, atol=0.03)
