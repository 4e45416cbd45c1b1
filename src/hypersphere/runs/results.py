"""results/: one JSON file for each finished run, with all that was measured at its end."""

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypersphere.config import Config
from hypersphere.errors import UserError
from hypersphere.util.files import make_folder, write_json


def name_of(cell: str, config: Config, hash: str | None = None) -> str:
    """Of one run of a cell: its folder, and its file in results/. `hash`: what the config's was then."""
    return f"{cell}-{config.epochs}-seed{config.seed}-{hash or config.hash}"


@dataclass(frozen=True)
class Result:
    """What one run of a cell gave. A run that diverged is a result too: it says so, and has no evaluation."""

    cell: str
    config: Config
    hash: str
    evaluation: dict[str, dict[str, float]]
    seconds: float  # of training
    about: dict[str, str]  # code, versions, device
    diverged: str | None = None
    history: list[dict[str, float]] = field(default_factory=list)  # what was measured during training, by epoch
    angles: list[int] | None = None  # of features on the circle: test images in each half degree

    @property
    def file(self) -> str:
        return f"{name_of(self.cell, self.config, self.hash)}.json"

    def write(self, folder: Path) -> Path:
        make_folder(folder)
        record: dict[str, Any] = {"cell": self.cell, "config": _portable(self.config), "hash": self.hash}
        record |= {"seconds": round(self.seconds, 1), "about": self.about, "evaluation": self.evaluation}
        record |= {"history": self.history} if self.history else {}
        record |= {name: value for name in ("diverged", "angles") if (value := getattr(self, name)) is not None}
        write_json(folder / self.file, record)
        return folder / self.file


def _portable(config: Config) -> dict[str, Any]:
    """Without the folders of the machine it ran on."""
    return {name: value for name, value in config.to_json().items() if name not in ("root", "out")}


def _numbers(measured: dict[str, float | None]) -> dict[str, float]:
    """What was written as null is no number."""
    return {name: math.nan if value is None else value for name, value in measured.items()}


def read_results(folder: Path) -> list[Result]:
    found = []
    for file in sorted(folder.glob("*.json")):
        try:
            record = json.loads(file.read_text(encoding="utf-8"))
            config = Config.from_json(record.pop("config"))
            evaluation = {name: _numbers(values) for name, values in record.pop("evaluation").items()}
            history = [_numbers(line) for line in record.pop("history", ())]
            found.append(Result(config=config, evaluation=evaluation, history=history, **record))
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise UserError(f"{file} is damaged ({error}): mend or remove it") from None
    return found
