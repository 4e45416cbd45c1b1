"""hypersphere data: list the datasets, or fetch one."""

import dataclasses
from pathlib import Path

from hypersphere.cli.options import parse, take_word


@dataclasses.dataclass(frozen=True)
class DataOptions:
    # Folder of the data files (None: $HYPERSPHERE_DATA, or ~/.cache/hypersphere/data).
    root: Path | None = None


def data(words: list[str]) -> None:
    name = take_word(words, DataOptions, "NAME")
    about = "List the data sets; with NAME, fetch that one and check it."
    options = parse(DataOptions, words, "hypersphere data [NAME]", about, DataOptions())
    from hypersphere.data import FILE_SOURCES, SOURCES, Dataset, Given, default_root

    if name is None:
        summaries = {n: s.summary for n, s in SOURCES.items()} | {n: s.summary for n, s in FILE_SOURCES.items()}
        for key, summary in summaries.items():
            print(f"{key:15} {summary}")
        return
    dataset = Dataset.resolve(Given(name, root=options.root))
    rest, validation = map(len, dataset.split("validation"))
    train, test = map(len, dataset.split("test"))
    split = f"{rest:,} + {validation:,} for validation"
    where = options.root or default_root()
    print(f"{name} in {where}: {train:,} training images ({split}), {test:,} test images")
