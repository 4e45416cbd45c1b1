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
    """A function from a file to the central square, as `read_pixels` and `middle` make it."""
    photographs = len(preprocess.mean) in (1, 3)
    return [
        "import numpy as np",
        f"from PIL import {'Image, ImageOps' if photographs else 'Image'}",
        f"from torchvision import {'io, ' * (photographs and preprocess.white is not None)}transforms",
        "",
        "def center_square(path):",
        *(f"    {line}" for line in (_photograph(preprocess) if photographs else _bands(preprocess))),
        "",
    ]


def _box(width: str, height: str) -> list[str]:
    return [
        f"short = min({width}, {height})",
        f"left, top = ({width} - short) / 2, ({height} - short) / 2",
        "box = left, top, left + short, top + short",
    ]


def _photograph(preprocess: Preprocess) -> list[str]:
    """Grey images and images in colour, which Pillow reads. Of 16-bit colours it keeps the high bytes."""
    side, white = preprocess.side, preprocess.white or WHITE
    return [
        "with Image.open(path) as file:",
        f"    scale = max(1, min(file.size) // {side})",
        '    file.draft("RGB", (file.width // scale, file.height // scale))  # a JPEG may be decoded smaller',
        "    image = ImageOps.exif_transpose(file)",
        'if image.mode.startswith("I"):  # 16 bits',
        f"    grey = np.asarray(image).astype(np.int64).clip(0, {white}) * 256 // {white + 1}",
        "    image = Image.fromarray(grey.astype(np.uint8))",
        *(_deep_colours(white) if preprocess.white is not None else []),
        'if image.mode[-1] in "Aa" or "transparency" in image.info:',
        '    image = image.convert("RGBA")',
        '    image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)',
        'image = image.convert("RGB")',
        *_box("image.width", "image.height"),
        f"image = image.resize(({side}, {side}), Image.Resampling.BICUBIC, box)",
        "return image" if len(preprocess.mean) == 3 else 'return image.convert("L")',
    ]


def _deep_colours(white: int) -> list[str]:
    return [
        'if file.format == "PNG" and image.mode.startswith("RGB"):',
        "    deep = io.read_image(str(path), io.ImageReadMode.UNCHANGED).numpy()",
        '    if deep.dtype == "uint16":  # 16-bit colours, perhaps with alpha',
        f"        alpha = deep[3:] / {WHITE}",
        f"        deep = np.rint(deep[:3] * alpha + {WHITE} * (1 - alpha)) if len(deep) == 4 else deep",
        f"        deep = deep.astype(np.int64).clip(0, {white}) * 256 // {white + 1}",
        "        image = Image.fromarray(deep.transpose(1, 2, 0).astype(np.uint8))",
    ]


def _bands(preprocess: Preprocess) -> list[str]:
    """Images with other numbers of channels: .npy files, and TIFF files by tifffile."""
    side, white = preprocess.side, preprocess.white or WHITE
    return [
        'if str(path).endswith(".npy"):',
        "    image = np.load(path)",
        "else:",
        "    import tifffile",
        "    image = tifffile.imread(path)",
        "image = image[None] if image.ndim == 2 else image",
        "image = np.moveaxis(image, 2, 0) if image.shape[2] < image.shape[0] else image  # channels first",
        'if image.dtype.kind == "f":',
        f"    image = np.rint(np.clip(np.nan_to_num(image.astype(np.float32)) / {preprocess.white or 1}, 0, 1) * 255)",
        'elif image.dtype != "uint8":',
        f"    image = np.clip(image, 0, {white}).astype(np.int64) * 256 // {white + 1}",
        *_box("image.shape[2]", "image.shape[1]"),
        "bands = [Image.fromarray(band) for band in image.astype(np.uint8)]",
        f"squares = [band.resize(({side}, {side}), Image.Resampling.BICUBIC, box) for band in bands]",
        "return np.stack(squares, axis=2)",
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
