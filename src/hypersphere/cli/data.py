"""hypersphere data: list the datasets, download one, or describe images of your own."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from hypersphere.cli.next_step import print_next
from hypersphere.cli.parsing import parse

KINDS = {
    "photos/": "a folder of images; subfolders are classes or train, val and test",
    "photos.zip": "the same in a zip file, or in photos.tar.gz",
    "part-{000..123}.tar": "tar files, also behind a URL",
    "clips/": "a folder of videos, of which --frames frames each are taken",
    "train.parquet": "parquet files with images, or a folder of them, as on the Hugging Face Hub",
    "saved/": "a folder that save_to_disk of Hugging Face datasets wrote",
    "arrays.npz": "arrays in a .npz or .npy file",
    "package.module:function": "a function that returns arrays or a dataset object",
}


@dataclasses.dataclass(frozen=True)
class DataOptions:
    """List the datasets; with DATA, download that dataset and check it, or describe images of your own."""

    name: Annotated[str | None, Positional, arg(metavar="[DATA]")] = None
    """Name of a dataset to download; or images of your own, as --data of pretrain takes them."""
    labels: str | None = None
    """CSV file with labels of your own images, as for pretrain."""
    white: int | None = None
    """Value of white in your own images of more than 8 bits, as for pretrain."""
    root: Path | None = None
    """Folder of the dataset files. None: $HYPERSPHERE_DATA, or ~/.cache/hypersphere/data."""


def run(words: Sequence[str]) -> None:
    options = parse("data", DataOptions, words)
    from hypersphere.config import Config
    from hypersphere.data import FILE_SOURCES, SOURCES, Dataset, DataSpec, default_root

    name = options.name
    if name is None:
        summaries = {n: s.summary for n, s in SOURCES.items()} | {n: s.summary for n, s in FILE_SOURCES.items()}
        for key, summary in summaries.items():
            print(f"{key:15} {summary}")
        print("\nYour own images, of any number of channels: --data takes")
        for what, meaning in KINDS.items():
            print(f"  {what:28} {meaning}")
        print_next("data", "DATA")
        return
    Config(white=options.white)  # checks it
    dataset = Dataset.resolve(DataSpec(name, root=options.root, labels=options.labels, white=options.white))
    dataset.check_options()
    if not dataset.has_recipe:
        print("\n".join(filter(None, (dataset.summary() or dataset.name, dataset.warning()))))
        given = {"--labels": options.labels, "--white": options.white}
        words = [word for key, value in given.items() if value is not None for word in (key, str(value))]
        print_next("pretrain", "--data", name, *words)
        return
    rest, validation = map(len, dataset.split("validation"))
    train, test = map(len, dataset.split("test"))
    split = f"{rest:,} + {validation:,} for validation"
    embedded = name in SOURCES and SOURCES[name].embedded
    place = "(embedded, nothing to download)" if embedded else f"in {options.root or default_root()}"
    print(f"{name} {place}: {train:,} training images ({split}), {test:,} test images")
    print_next("pretrain", "--data", name)
