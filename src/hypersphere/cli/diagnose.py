"""hypersphere diagnose: check a representation for collapse and poor spread."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from hypersphere.cli.next_step import print_next
from hypersphere.cli.parsing import parse
from hypersphere.util.run_files import is_run


@dataclasses.dataclass(frozen=True)
class DiagnoseOptions:
    """Check a representation: has it collapsed, how does it spread over the sphere, which layers are redundant?"""

    target: Annotated[str, Positional, arg(metavar="TARGET")]
    """A run's folder or an exported one; embeddings (.npy, .npz, .parquet, .csv); a checkpoint (.pt, .safetensors)
    with --encoder; a model of torchvision or timm by name; or your own, as package.module:function."""
    data: str | None = None
    """Dataset, or images of your own, whose held-out images the encoder is shown. None: the run's; for a model, the
    digits of scikit-learn."""
    images: int | None = None
    """Number of images. None: 2000 for a run, 256 for a model."""
    size: int | None = None
    """Side of the encoder's input in pixels. None: what the encoder takes, as far as that is known."""
    encoder: str | None = None
    """Encoder of a checkpoint, such as torchvision/resnet50 or timm/vit_small_patch16_224."""
    pretrained: bool = False
    """Use the weights that torchvision or timm have for the model, and download them if needed."""
    root: Path | None = None
    """Folder of the dataset files, or the new location of a run's images. None: the run's, $HYPERSPHERE_DATA, or
    ~/.cache/hypersphere/data."""
    device: str = "auto"
    """Device, such as cpu or cuda:1. auto: the GPU if there is one."""
    out: Annotated[Path | None, arg(aliases=["-o"])] = None
    """Also write all measures to this JSON file."""
    trust: bool = False
    """Use code and images that the run or exported encoder names. What you made does not need it."""


def run(words: Sequence[str]) -> None:
    options = parse("diagnose", DiagnoseOptions, words)
    from hypersphere.inference.diagnosis import diagnose
    from hypersphere.report.diagnosis import print_diagnosis
    from hypersphere.util.files import check_file, write_json

    if options.out is not None:
        check_file(options.out, "out")
    given = {name: value for name, value in vars(options).items() if name not in ("target", "out")}
    found = diagnose(options.target, progress=True, **given)
    print_diagnosis(found)
    if options.out is not None:
        write_json(options.out, found.to_json())
        print(f"written to {options.out}")
    if is_run(options.target):
        print_next("report", options.target)
