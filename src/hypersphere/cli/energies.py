"""hypersphere energies: the hyperspherical energy of every layer of a file of weights."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from hypersphere.cli.parsing import parse


@dataclasses.dataclass(frozen=True)
class EnergiesOptions:
    """Show how evenly the neurons of each layer spread over the sphere, or what has changed between two files."""

    weights: Annotated[Path, Positional, arg(metavar="WEIGHTS")]
    """File of weights: .safetensors, or .pt with a state_dict. It is read layer by layer."""
    against: Path | None = None
    """Another file, such as the model before fine-tuning: shows how energies and directions changed since."""
    metric: Literal["geodesic", "euclidean"] = "geodesic"
    """Distance of neurons: their angle, or the straight line."""
    s: float = 2.0
    """Power of the inverse distance; 0 is the logarithmic energy."""
    device: str = "auto"
    """Device, such as cpu or cuda:1. auto: the GPU if there is one."""
    out: Annotated[Path | None, arg(aliases=["-o"])] = None
    """Also write the numbers to this JSON file."""


def run(words: Sequence[str]) -> None:
    options = parse("energies", EnergiesOptions, words)
    from hypersphere.inference.energies import compare, energies
    from hypersphere.report.energies import print_changes, print_energies, to_json
    from hypersphere.runs.machine import pick_device
    from hypersphere.util.files import check_file, write_json

    if options.out is not None:
        check_file(options.out, "out")
    device = pick_device(options.device)
    if options.against is None:
        found = energies(options.weights, s=options.s, metric=options.metric, device=device)
        print_energies(found)
        record = to_json(found)
    else:
        changes = compare(options.against, options.weights, s=options.s, metric=options.metric, device=device)
        print_changes(changes)
        record = to_json(changes)
    if options.out is not None:
        write_json(options.out, record)
        print(f"written to {options.out}")
