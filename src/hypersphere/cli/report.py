"""hypersphere report: one page of some runs."""

import dataclasses
from pathlib import Path

from hypersphere.cli.options import parse, take_words, with_short
from hypersphere.errors import UserError


@dataclasses.dataclass(frozen=True)
class ReportOptions:
    # The page to write; -o for short.
    out: Path = Path("report.html")
    # auto: the GPU if there is one.
    device: str = "auto"
    # Folder of the data files (None: each run's); of runs on a folder of images that has moved, that folder.
    root: Path | None = None


def report(words: list[str]) -> None:
    words = with_short(words)
    paths = take_words(words, ReportOptions)
    about = "Write one HTML page that compares runs and needs no network. RUN …: folders that pretrain wrote."
    options = parse(ReportOptions, words, "hypersphere report RUN …", about, ReportOptions())
    if not paths:
        raise UserError("say which runs to report: hypersphere report RUN …")
    from hypersphere.report.page import write_report

    write_report(paths, options.out, options.device, options.root, progress=True)
    print(f"written to {options.out}")
