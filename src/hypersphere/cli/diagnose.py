"""hypersphere diagnose: is a representation healthy?"""

import dataclasses
from pathlib import Path

from hypersphere.cli.options import parse, take_word, with_short
from hypersphere.errors import UserError


@dataclasses.dataclass(frozen=True)
class DiagnoseOptions:
    # Data set whose held-out images an encoder is shown (None: the run's; for a model, the digits of scikit-learn).
    data: str | None = None
    # How many (None: 2000 of a run's data, 256 for a model).
    images: int | None = None
    # Pixels a side that the encoder is shown (None: what it takes, as far as that is known).
    size: int | None = None
    # The encoder that a checkpoint is of, such as torchvision/resnet50 or timm/vit_small_patch16_224.
    encoder: str | None = None
    # Take the weights along that the library has for a model, fetching them if need be.
    pretrained: bool = False
    # Folder of the data files (None: the run's, or $HYPERSPHERE_DATA, or ~/.cache/hypersphere/data); of a run on a
    # folder of images that has moved, that folder.
    root: Path | None = None
    # auto: the GPU if there is one.
    device: str = "auto"
    # Write everything into this JSON file as well; -o for short.
    out: Path | None = None


def diagnose(words: list[str]) -> None:
    words = with_short(words)
    target = take_word(words, DiagnoseOptions, "X")
    about = (
        "Look at a representation: is it collapsed, how is it spread over the sphere, which layers are redundant?\n\n"
        "X: a run's folder; embeddings (.npy, .npz, .parquet); a checkpoint (.pt, .safetensors) with --encoder; or a\n"
        "model of torchvision or timm by name."
    )
    options = parse(DiagnoseOptions, words, "hypersphere diagnose X", about, DiagnoseOptions())
    if target is None:
        raise UserError("say what to diagnose: hypersphere diagnose X")
    from hypersphere.inference.diagnosis import diagnose as look
    from hypersphere.report.diagnosis import print_diagnosis
    from hypersphere.util.files import check_file, write_json

    if options.out is not None:
        check_file(options.out, "out")
    found = look(target, progress=True, **{name: value for name, value in vars(options).items() if name != "out"})
    print_diagnosis(found)
    if options.out is not None:
        write_json(options.out, found.to_json())
        print(f"written to {options.out}")
