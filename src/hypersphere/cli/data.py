"""hypersphere data: list the datasets, or download one."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from hypersphere.cli.next_step import print_next
from hypersphere.cli.options import parse


@dataclasses.dataclass(frozen=True)
class DataOptions:
    """List the datasets; with NAME, download that dataset and check it."""

    name: Annotated[str | None, Positional, arg(metavar="[NAME]")] = None
    """Dataset to download."""
    root: Path | None = None
    """Folder of the dataset files. None: $HYPERSPHERE_DATA, or ~/.cache/hypersphere/data."""


def run(words: Sequence[str]) -> None:
    options = parse("data", DataOptions, words)
    from hypersphere.data import FILE_SOURCES, SOURCES, Dataset, DataSpec, default_root

    name = options.name
    if name is None:
        summaries = {n: s.summary for n, s in SOURCES.items()} | {n: s.summary for n, s in FILE_SOURCES.items()}
        for key, summary in summaries.items():
            print(f"{key:15} {summary}")
        print("\nYour own images: --data takes a folder, tar files (part-{000..123}.tar), an .npz file of arrays,")
        print("a folder that save_to_disk of Hugging Face wrote, or package.module:function.")
        print_next("data", "NAME")
        return
    dataset = Dataset.resolve(DataSpec(name, root=options.root))
    rest, validation = map(len, dataset.split("validation"))
    train, test = map(len, dataset.split("test"))
    split = f"{rest:,} + {validation:,} for validation"
    folder = options.root or default_root()
    print(f"{name} in {folder}: {train:,} training images ({split}), {test:,} test images")
    print_next("pretrain", "byol-mhe", "--data", name)
