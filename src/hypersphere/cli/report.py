"""hypersphere report: write an HTML page that compares runs."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from hypersphere.cli.parsing import parse


@dataclasses.dataclass(frozen=True)
class ReportOptions:
    """Write one HTML page that compares runs. The page needs no network."""

    run: Annotated[tuple[str, ...], Positional, arg(metavar="RUN …")]
    """Folders that pretrain wrote."""
    out: Annotated[Path, arg(aliases=["-o"])] = Path("report.html")
    """Page to write."""
    device: str = "auto"
    """Device, such as cpu or cuda:1. auto: the GPU if there is one."""
    root: Path | None = None
    """Folder of the dataset files, or the new location of the runs' images. None: that of each run."""
    trust: bool = False
    """Use code and images that the runs name. Runs that you made do not need it."""


def run(words: Sequence[str]) -> None:
    options = parse("report", ReportOptions, words)
    from hypersphere.report.page import write_report

    write_report(options.run, options.out, options.device, options.root, trust=options.trust, progress=True)
    print(f"written to {options.out}: open it in a browser")
