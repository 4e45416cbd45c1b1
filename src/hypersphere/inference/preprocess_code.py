"""Preprocessing of an encoder as code that needs PIL and torchvision or timm alone: lines for the card."""

from hypersphere.data.decode import WHITE
from hypersphere.runs.preprocess import Preprocess


def preprocess_code(preprocess: Preprocess) -> dict[str, list[str]]:
    """Lines that define `preprocess(path)`, the input of the encoder as a tensor (C, size, size), by library.

    `Resize` and `CenterCrop` alone would round the long side and the position of the crop to whole pixels.
    """
    tensors = [f"    {line}," for line in _of_tensors(preprocess)]
    normalize = f"Normalize({list(preprocess.mean)}, {list(preprocess.std)})"
    size = preprocess.size
    timm = (
        f"timm.data.create_transform({size}, interpolation='bicubic', crop_pct=1.0, "
        f"mean={preprocess.mean}, std={preprocess.std})"
    )
    found = {
        "torchvision": [
            *_center_square(preprocess),
            "preprocess = transforms.Compose([",
            "    center_square,",
            "    transforms.ToTensor(),",
            *tensors,
            f"    transforms.{normalize},",
            "])",
        ]
    }
    crop = preprocess.crop or preprocess.side
    if preprocess.resize in (None, preprocess.side) and crop == size and len(preprocess.mean) == 3:
        cropped = [] if crop == preprocess.side else [f"    transforms.CenterCrop({crop}),"]
        lines = ["preprocess = transforms.Compose([", "    center_square,", *cropped, f"    {timm},", "])"]
        found["timm"] = ["import timm", *_center_square(preprocess), *lines]
    return found


def _center_square(preprocess: Preprocess) -> list[str]:
    """A function from a file to the central square, as `read_image` and `middle` make it."""
    side, white = preprocess.side, preprocess.white or WHITE
    return [
        "import numpy as np",
        "from PIL import Image, ImageOps",
        "from torchvision import transforms",
        "",
        "def center_square(path):",
        "    with Image.open(path) as file:",
        f"        scale = max(1, min(file.size) // {side})",
        '        file.draft("RGB", (file.width // scale, file.height // scale))  # a JPEG may be decoded smaller',
        "        image = ImageOps.exif_transpose(file)",
        '    if image.mode.startswith("I"):  # 16 bits',
        f"        grey = np.asarray(image).astype(np.int64).clip(0, {white}) * 256 // {white + 1}",
        "        image = Image.fromarray(grey.astype(np.uint8))",
        '    if image.mode[-1] in "Aa" or "transparency" in image.info:',
        '        image = image.convert("RGBA")',
        '        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)',
        '    image = image.convert("RGB")',
        "    short = min(image.size)",
        "    left, top = (image.width - short) / 2, (image.height - short) / 2",
        "    box = left, top, left + short, top + short",
        f"    image = image.resize(({side}, {side}), Image.Resampling.BICUBIC, box)",
        "    return image" if len(preprocess.mean) == 3 else '    return image.convert("L")',
        "",
    ]


def _of_tensors(preprocess: Preprocess) -> list[str]:
    """Transforms between `ToTensor` and `Normalize`."""
    side, lines = preprocess.side, []

    def resized(to: int) -> list[str]:
        bicubic = "transforms.InterpolationMode.BICUBIC, antialias=True"
        return [f"transforms.Resize(({to}, {to}), {bicubic})", "transforms.Lambda(lambda x: x.clamp(0, 1))"]

    if preprocess.resize not in (None, side):
        side = preprocess.resize or side
        lines += resized(side)
    if preprocess.crop not in (None, side):
        side = preprocess.crop or side
        lines.append(f"transforms.CenterCrop({side})")
    return lines if side == preprocess.size else lines + resized(preprocess.size)
